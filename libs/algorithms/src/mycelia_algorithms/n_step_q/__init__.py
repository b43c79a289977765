"""Asynchronous n-step Q-learning: workers push gradients of action values."""
