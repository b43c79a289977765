"""The loss of the advantage actor-critic."""

from dataclasses import dataclass

from torch import Tensor

from mycelia_algorithms.networks.distributions import Distribution
from mycelia_algorithms.ops.policy_gradient import policy_gradient


@dataclass(frozen=True, slots=True)
class ActorCriticLoss:
    """The loss and its parts, all [], with gradient."""

    loss: Tensor
    policy_loss: Tensor
    value_loss: Tensor
    entropy: Tensor


def actor_critic_loss(
    policy: Distribution,
    value: Tensor,
    *,
    action: Tensor,
    advantage: Tensor,
    return_: Tensor,
    weight: Tensor,
    value_coefficient: float,
    entropy_coefficient: float,
) -> ActorCriticLoss:
    r"""Policy gradient, value regression and an entropy bonus.

    Mnih et al. 2016, section 4 (https://arxiv.org/abs/1602.01783), as a mean over the steps:

        L = mean[ -log pi(a|s) A + c_v (R - V)^2 / 2 - c_e H(pi(.|s)) ]

    Args:
      policy: over actions, batch shape [T, N].
      value: [T, N] V(s).
      action: [T, N, ...] what was done.
      advantage: [T, N] A; a constant.
      return_: [T, N] R; a constant.
      weight: [T, N] float, the share of each step in the mean; 0 for rows that are no step.
      value_coefficient: c_v.
      entropy_coefficient: c_e.
    """
    policy_loss = (weight * policy_gradient(policy.log_prob(action), advantage)).sum()
    value_loss = (weight * 0.5 * (return_.detach() - value).square()).sum()
    entropy = (weight * policy.entropy()).sum()
    loss = policy_loss + value_coefficient * value_loss - entropy_coefficient * entropy
    return ActorCriticLoss(loss, policy_loss, value_loss, entropy)
