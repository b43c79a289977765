"""How much better than expected actions were: n-step returns and advantages of rollouts."""

import torch
from torch import Tensor


def n_step_returns(
    reward: Tensor, next_value: Tensor, terminated: Tensor, ends: Tensor, gamma: float
) -> Tensor:
    r"""Sums the rewards up to each episode's end, or the rollout's, and bootstraps there.

    Mnih et al. 2016, algorithm S3 (https://arxiv.org/abs/1602.01783):

        R_t = r_t + gamma R_{t+1}                          if the episode goes on in row t+1
        R_t = r_t + gamma (1 - terminated_t) V(s'_t)       at its end, and in the last row

    Args:
      reward: [T, B] float, r_t.
      next_value: [T, B] V(s'_t) of the true successor; read only at ends and in the last row.
      terminated: [T, B] bool: the episode ended there and is worth nothing after.
      ends: [T, B] bool: the episode ended or was cut there.
      gamma: the discount of one step.

    Returns:
      [T, B] the returns; no gradient flows into `next_value`.

    Raises:
      ValueError: if the shapes do not fit.
    """
    _check_shapes(reward, next_value, terminated, ends)
    bootstrap = next_value.detach() * ~terminated
    following = bootstrap[-1]
    returns = torch.empty_like(reward)
    for t in range(len(reward) - 1, -1, -1):
        following = reward[t] + gamma * torch.where(ends[t], bootstrap[t], following)
        returns[t] = following
    return returns


def generalised_advantage(
    reward: Tensor,
    value: Tensor,
    next_value: Tensor,
    terminated: Tensor,
    ends: Tensor,
    *,
    gamma: float,
    gae_lambda: float,
) -> Tensor:
    r"""The exponentially weighted mean of all k-step advantages.

    Schulman et al. 2016, eq. 16 (https://arxiv.org/abs/1506.02438):

        delta_t = r_t + gamma (1 - terminated_t) V(s'_t) - V(s_t)
        A_t = delta_t + gamma lambda (1 - ends_t) A_{t+1}

    With lambda 1 it is the n-step return less V(s_t).

    Args:
      reward: [T, B] float, r_t.
      value: [T, B] V(s_t).
      next_value: [T, B] V(s'_t) of the true successor: at an end, of the final observation.
      terminated: [T, B] bool: the episode ended there and is worth nothing after.
      ends: [T, B] bool: the episode ended or was cut there.
      gamma: the discount of one step.
      gae_lambda: from 0 (one step) to 1 (all of them).

    Returns:
      [T, B] the advantages, constants.

    Raises:
      ValueError: if the shapes do not fit.
    """
    _check_shapes(reward, next_value, terminated, ends)
    if value.shape != reward.shape:
        raise ValueError(f"need value {tuple(reward.shape)}, got {tuple(value.shape)}")
    delta = reward + gamma * next_value.detach() * ~terminated - value.detach()
    # A Python number times a bool tensor would be float32, whatever the rest is.
    carry = gamma * gae_lambda * (~ends).to(delta.dtype)
    advantage = torch.empty_like(delta)
    following = torch.zeros_like(delta[0])
    for t in range(len(delta) - 1, -1, -1):
        following = delta[t] + carry[t] * following
        advantage[t] = following
    return advantage


def _check_shapes(reward: Tensor, next_value: Tensor, terminated: Tensor, ends: Tensor) -> None:
    shapes = [tuple(x.shape) for x in (reward, next_value, terminated, ends)]
    if reward.ndim != 2 or len(set(shapes)) != 1:
        raise ValueError(f"need reward, next_value, terminated and ends of [T, B], got {shapes}")
