"""Clients of the services, for use from ordinary threads."""
