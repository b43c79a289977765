"""Objectives that keep a new policy near the one that acted: clipping and a KL penalty."""

import torch
from torch import Tensor


def clipped_surrogate(
    log_prob: Tensor, behaviour_log_prob: Tensor, advantage: Tensor, *, clip_range: float
) -> Tensor:
    r"""The clipped policy objective of PPO, for each sample, negated so that it is minimised.

    Schulman et al. 2017, eq. 7 (https://arxiv.org/abs/1707.06347):

        L_i = -min(r_i A_i, clip(r_i, 1 - eps, 1 + eps) A_i),   r_i = pi(a_i|s_i) / mu(a_i|s_i)

    Args:
      log_prob: [B] log pi(a|s) under the policy being trained.
      behaviour_log_prob: [B] log mu(a|s) of the policy that acted.
      advantage: [B] A; a constant.
      clip_range: eps, how far r may move from 1 before the gradient stops.

    Returns:
      [B] the losses.

    Raises:
      ValueError: if the shapes differ.
    """
    ratio = _ratio(log_prob, behaviour_log_prob, advantage)
    # The advantage weighs the gradient, it is no way to lower the loss.
    advantage = advantage.detach()
    clipped_ratio = ratio.clamp(1 - clip_range, 1 + clip_range)
    return -torch.minimum(ratio * advantage, clipped_ratio * advantage)


def penalised_surrogate(
    log_prob: Tensor,
    behaviour_log_prob: Tensor,
    advantage: Tensor,
    divergence: Tensor,
    *,
    coefficient: float,
    hinge_target: float,
    hinge_coefficient: float,
) -> Tensor:
    r"""The policy objective with a KL penalty, for each sample, negated so that it is minimised.

    Heess et al. 2017, algorithm 3 (https://arxiv.org/abs/1707.02286):

        L_i = -r_i A_i + lambda KL_i + xi max(0, KL - 2 target)^2

    where the last term holds back a step that has gone too far, over the batch's mean KL.

    Args:
      log_prob: [B] log pi(a|s) under the policy being trained.
      behaviour_log_prob: [B] log mu(a|s) of the policy that acted.
      advantage: [B] A; a constant.
      divergence: [B] KL(mu || pi) at each state, with gradient.
      coefficient: lambda.
      hinge_target: target.
      hinge_coefficient: xi.

    Returns:
      [B] the losses.

    Raises:
      ValueError: if the shapes differ.
    """
    ratio = _ratio(log_prob, behaviour_log_prob, advantage)
    excess = (divergence.mean() - 2 * hinge_target).clamp(min=0)
    penalty = coefficient * divergence + hinge_coefficient * excess.square()
    return penalty - ratio * advantage.detach()


def adapt_coefficient(coefficient: float, divergence: float, target: float) -> float:
    r"""The KL penalty's coefficient for the next iteration.

    Heess et al. 2017, algorithm 1 (https://arxiv.org/abs/1707.02286), with alpha 1.5 and
    beta_high 2, beta_low 1/2: times alpha above 2 target, divided by it below target / 2.
    """
    if divergence > 2 * target:
        return min(1.5 * coefficient, 1e4)
    if divergence < target / 2:
        return max(coefficient / 1.5, 1e-4)
    return coefficient


def clipped_value_loss(
    value: Tensor, behaviour_value: Tensor, return_: Tensor, clip_range: float
) -> Tensor:
    r"""Half the squared error of values that may move by `clip_range` at most, for each sample.

    Schulman et al.'s own code (https://github.com/openai/baselines, ppo2), in no paper:

        l = max((V - R)^2, (clip(V, V_mu - eps, V_mu + eps) - R)^2) / 2

    Args:
      value: [B] V.
      behaviour_value: [B] V_mu, the value when it acted.
      return_: [B] R; a constant.
      clip_range: eps, in the unit of the returns.

    Returns:
      [B] the losses.
    """
    clipped = behaviour_value + (value - behaviour_value).clamp(-clip_range, clip_range)
    return 0.5 * torch.maximum((value - return_).square(), (clipped - return_).square())


def approximate_kl(log_prob: Tensor, behaviour_log_prob: Tensor) -> Tensor:
    """The low-variance estimate of KL(mu || pi) from samples of mu, [B] -> [B], never below 0.

    Schulman 2020 (http://joschu.net/blog/kl-approx.html), k3: r - 1 - log r.
    """
    log_ratio = log_prob - behaviour_log_prob
    return torch.expm1(log_ratio) - log_ratio


def _ratio(log_prob: Tensor, behaviour_log_prob: Tensor, advantage: Tensor) -> Tensor:
    if not log_prob.shape == behaviour_log_prob.shape == advantage.shape:
        raise ValueError(
            f"shapes differ: log_prob {tuple(log_prob.shape)}, behaviour_log_prob "
            f"{tuple(behaviour_log_prob.shape)}, advantage {tuple(advantage.shape)}"
        )
    return torch.exp(log_prob - behaviour_log_prob.detach())
