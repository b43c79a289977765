"""Networks, and the factory that builds them from a spec."""
