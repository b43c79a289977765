"""The advantage actor-critic: A3C when its gradients come as they come, A2C in rounds."""
