"""Central inference: the policy's network, evaluated on one host for the actors of many."""
