"""Actors that compute gradients from their own rollouts. Needs torch; imported by them alone."""
