"""Targets and errors of action values."""

import math

import torch
from torch import Tensor
from torch.nn import functional


def q_target(return_: Tensor, discount: Tensor, target_q: Tensor) -> Tensor:
    r"""The target of Q-learning: y = R + Gamma max_a Q'(s', a).

    Mnih et al. 2015, eq. 2 and algorithm 1 (https://doi.org/10.1038/nature14236), with the
    n-step return of `mycelia_algorithms.ops.returns`.

    Args:
      return_: [B] R.
      discount: [B] Gamma, 0 where the episode terminated.
      target_q: [B, A] Q'(s', .) of the target network.

    Returns:
      [B] y, a constant: no gradient flows into the target network.

    Raises:
      ValueError: if the shapes do not fit.
    """
    _check_target_shapes(return_, discount, target_q)
    # The target is what Q moves towards; a gradient through it would move it towards Q.
    return return_ + discount * target_q.detach().amax(dim=1)


def double_q_target(
    return_: Tensor, discount: Tensor, online_q: Tensor, target_q: Tensor
) -> Tensor:
    r"""The target of Double DQN: the online network chooses, the target network judges.

    van Hasselt et al. 2016, eq. 4 (https://arxiv.org/abs/1509.06461):

        y = R + Gamma Q'(s', argmax_a Q(s', a))

    Args:
      return_: [B] R.
      discount: [B] Gamma, 0 where the episode terminated.
      online_q: [B, A] Q(s', .) of the online network.
      target_q: [B, A] Q'(s', .) of the target network.

    Returns:
      [B] y, a constant: no gradient flows into either network.

    Raises:
      ValueError: if the shapes do not fit.
    """
    _check_target_shapes(return_, discount, target_q)
    if online_q.shape != target_q.shape:
        raise ValueError(
            f"shapes differ: online_q {tuple(online_q.shape)}, target_q {tuple(target_q.shape)}"
        )
    choice = online_q.detach().argmax(dim=1, keepdim=True)
    return return_ + discount * target_q.detach().gather(1, choice).squeeze(1)


def mask_illegal(q: Tensor, legal: Tensor | None) -> Tensor:
    """Gives actions that are not legal the lowest value there is: no maximum is ever theirs.

    Args:
      q: [B, A].
      legal: [B, A], not 0 where an action is legal; None if all are.

    Returns:
      [B, A]; finite, so that a terminated state without legal actions still counts 0 times it.

    Raises:
      ValueError: if the shapes differ.
    """
    if legal is None:
        return q
    if legal.shape != q.shape:
        raise ValueError(f"shapes differ: q {tuple(q.shape)}, legal {tuple(legal.shape)}")
    return q.masked_fill(legal == 0, torch.finfo(q.dtype).min)


def huber(error: Tensor, delta: float) -> Tensor:
    r"""The Huber loss of each error: quadratic up to `delta`, linear beyond it.

    Huber 1964, eq. 2.11 (https://doi.org/10.1214/aoms/1177703732):

        l(x) = x^2 / 2 if |x| <= delta, else delta (|x| - delta / 2)

    Its slope never exceeds `delta`. With `delta` infinite it is x^2 / 2 everywhere.

    Args:
      error: float, any shape.
      delta: where the slope stops growing, above 0.

    Returns:
      The losses, `error`'s shape.
    """
    if math.isinf(delta):
        return 0.5 * error.square()
    return functional.huber_loss(error, torch.zeros_like(error), reduction="none", delta=delta)


def dueling(value: Tensor, advantage: Tensor) -> Tensor:
    r"""Action values from a state value and advantages: Q = V + A - mean_a A.

    Wang et al. 2016, eq. 9 (https://arxiv.org/abs/1511.06581). The mean, not the maximum of
    eq. 8.

    Args:
      value: [..., 1] V(s).
      advantage: [..., A] A(s, .).

    Returns:
      [..., A] Q(s, .).

    Raises:
      ValueError: if the shapes do not fit.
    """
    if value.shape != (*advantage.shape[:-1], 1):
        raise ValueError(
            f"need value [..., 1] for advantage [..., A], got {tuple(value.shape)} "
            f"and {tuple(advantage.shape)}"
        )
    return value + advantage - advantage.mean(dim=-1, keepdim=True)


def action_value(q: Tensor, action: Tensor) -> Tensor:
    """Picks the value of the action taken: [B, A] and integer [B] -> [B].

    Raises:
      ValueError: if the shapes do not fit.
    """
    if q.ndim != 2 or action.shape != q.shape[:1]:
        raise ValueError(
            f"need q [B, A] and action [B], got {tuple(q.shape)} and {tuple(action.shape)}"
        )
    return q.gather(1, action.to(torch.int64).unsqueeze(1)).squeeze(1)


def _check_target_shapes(return_: Tensor, discount: Tensor, target_q: Tensor) -> None:
    # [B, 1] - [B] would broadcast to [B, B] without an error.
    if target_q.ndim != 2 or not return_.shape == discount.shape == target_q.shape[:1]:
        raise ValueError(
            f"need return_ [B], discount [B] and target_q [B, A], got {tuple(return_.shape)}, "
            f"{tuple(discount.shape)} and {tuple(target_q.shape)}"
        )
