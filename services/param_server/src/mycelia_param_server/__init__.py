"""The parameter server of Mycelia: the newest weights, and the registry of the run."""
