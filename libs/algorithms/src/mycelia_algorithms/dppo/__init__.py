"""Distributed PPO: workers average the gradients of several sub-steps on their own rollouts."""
