"""The loss of DQN."""

import math
from dataclasses import dataclass

from torch import Tensor

from mycelia_algorithms.ops.value import huber


@dataclass(frozen=True, slots=True)
class DqnLoss:
    """The loss and the errors it is made of."""

    loss: Tensor
    """[] what is minimised."""

    td_error: Tensor
    """[B] target - Q(s, a), without gradient: |td_error| is what priorities are made of."""


def dqn_loss(
    q: Tensor, target: Tensor, sampling_weight: Tensor, *, huber_delta: float | None
) -> DqnLoss:
    r"""The weighted mean Huber loss of the temporal-difference errors.

    Schaul et al. 2016, algorithm 1 (https://arxiv.org/abs/1511.05952), with Mnih et al.'s
    clipped error:

        L = 1/B sum_i w_i l(y_i - Q(s_i, a_i))

    The weight multiplies the loss, not the error, and the sum is divided by B, not by sum w.

    Args:
      q: [B] Q(s, a) of the online network.
      target: [B] y; treated as a constant.
      sampling_weight: [B] w; treated as a constant.
      huber_delta: where l turns linear; None for l(x) = x^2 / 2 everywhere.

    Returns:
      The loss and the errors.

    Raises:
      ValueError: if the shapes differ.
    """
    if not q.shape == target.shape == sampling_weight.shape:
        raise ValueError(
            f"shapes differ: q {tuple(q.shape)}, target {tuple(target.shape)}, "
            f"sampling_weight {tuple(sampling_weight.shape)}"
        )
    error = target.detach() - q
    delta = math.inf if huber_delta is None else huber_delta
    loss = (sampling_weight.detach() * huber(error, delta)).mean()
    return DqnLoss(loss=loss, td_error=error.detach())
