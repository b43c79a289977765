"""The documented actor-critic MLP, evaluated with numpy: what the policy says of observations.

The tensors are named as torch names them: `policy_trunk.0.weight [h, D]`, `policy_trunk.0.bias
[h]` and so on, or `trunk.{i}` where policy and value share it, then `policy.weight [A, h]` and
`policy.bias [A]`. Weights of policies that normalise what they see hold `statistics/observation/`
`mean`, `m2` and `count` as well.
"""

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Tensors = Mapping[str, NDArray[Any]]

_MOMENTS = "statistics/observation/"
_CLIP = 10.0
_EPSILON = 1e-8


def is_actor_critic(tensors: Tensors) -> bool:
    """Whether weights are an actor-critic's, of whatever form."""
    return "policy.weight" in tensors


def is_plain(tensors: Tensors) -> bool:
    """Whether they are an MLP's, which `policy_output` evaluates: no LSTM, no convolutions."""
    return not any(name.startswith(("lstm.", "encoder.")) for name in tensors)


def policy_output(
    tensors: Tensors,
    observation: NDArray[np.float32],
    activation: Literal["relu", "tanh"],
) -> NDArray[np.float32]:
    """Returns the policy's output: logits of discrete actions, means of continuous ones.

    Args:
      tensors: the network's weights, float32, and its statistics.
      observation: [N, D] float32, as the environment gives it.
      activation: what follows each hidden layer.

    Returns:
      [N, A] float32.
    """
    hidden = normalise(tensors, observation)
    trunk = "policy_trunk" if "policy_trunk.0.weight" in tensors else "trunk"
    layer = 0
    while (weight := tensors.get(f"{trunk}.{layer}.weight")) is not None:
        hidden = hidden @ weight.T
        hidden += tensors[f"{trunk}.{layer}.bias"]
        if activation == "tanh":
            np.tanh(hidden, out=hidden)
        else:
            np.maximum(hidden, 0.0, out=hidden)
        layer += 1
    output: NDArray[np.float32] = hidden @ tensors["policy.weight"].T + tensors["policy.bias"]
    return output


def normalise(tensors: Tensors, observation: NDArray[np.float32]) -> NDArray[np.float32]:
    """Shifts and scales observations [N, ...] by the statistics among the weights, if any."""
    if f"{_MOMENTS}count" not in tensors:
        return observation
    count = float(tensors[f"{_MOMENTS}count"])
    m2 = tensors[f"{_MOMENTS}m2"]
    variance = m2 / count if count >= 2 else np.ones_like(m2)
    deviation = np.sqrt(variance + _EPSILON).astype(np.float32)
    shifted = observation - tensors[f"{_MOMENTS}mean"].astype(np.float32)
    normalised: NDArray[np.float32] = np.clip(shifted / deviation, -_CLIP, _CLIP)
    return normalised
