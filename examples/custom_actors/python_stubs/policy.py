"""Which action to take: the documented MLP, evaluated from the tensors of a version."""

import numpy as np


def choose(tensors, observation, rng):
    """Returns epsilon-greedy actions for [N, D] observations; random ones without weights."""
    count = len(observation)
    actions = rng.integers(2, size=count)
    if not tensors:
        return actions
    hidden, layer = observation, 0
    while f"trunk.{layer}.weight" in tensors:
        hidden = np.maximum(linear(tensors, f"trunk.{layer}", hidden), 0)
        layer += 1
    # The value is the same for all actions, so the advantage alone decides.
    q = linear(tensors, "q" if "q.weight" in tensors else "advantage", hidden)
    # Ape-X: every environment explores at its own rate, from 0.4 down to 0.4^8.
    epsilon = 0.4 ** (1 + 7 * np.arange(count) / max(1, count - 1))
    return np.where(rng.random(count) < epsilon, actions, q.argmax(axis=1))


def linear(tensors, name, inputs):
    return inputs @ tensors[f"{name}.weight"].T + tensors[f"{name}.bias"]
