"""The losses of a DPPO sub-step."""

from dataclasses import dataclass

import torch
from torch import Tensor

from mycelia_algorithms.dppo.config import DppoConfig
from mycelia_algorithms.networks.distributions import Distribution, kl_divergence
from mycelia_algorithms.ops.surrogate import (
    clipped_surrogate,
    clipped_value_loss,
    penalised_surrogate,
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Minibatch:
    """The steps of one sub-step: [1, B], or whole sequences [T, n] for an LSTM."""

    observation: Tensor
    """[T, n, ...] normalised."""

    first: Tensor
    """[T, n] bool."""

    action: Tensor
    """[T, n, ...]"""

    behaviour: Distribution
    """The policy that acted, batch shape [T, n]."""

    behaviour_log_prob: Tensor
    """[T, n] log mu(a|s)."""

    behaviour_value: Tensor
    """[T, n] V(s) of then."""

    advantage: Tensor
    """[T, n]"""

    return_: Tensor
    """[T, n]"""

    weight: Tensor
    """[T, n] each step's share in the mean; 0 for rows that are no step."""

    sample_count: int
    """How many steps there are."""


@dataclass(frozen=True, slots=True)
class DppoLoss:
    """The loss, with gradient, and what there is to know about it, all []."""

    loss: Tensor
    policy_loss: Tensor
    value_loss: Tensor
    entropy: Tensor
    kl: Tensor
    clip_fraction: Tensor


def policy_loss(
    policy: Distribution, batch: Minibatch, config: DppoConfig, kl_coefficient: float
) -> tuple[Tensor, Tensor]:
    """The policy's loss [] and the mean KL(mu || pi) [] of a minibatch."""
    log_prob = policy.log_prob(batch.action)
    divergence = kl_divergence(batch.behaviour, policy)
    if config.objective == "clip":
        each = clipped_surrogate(
            log_prob, batch.behaviour_log_prob, batch.advantage, clip_range=config.clip_range
        )
    else:
        each = penalised_surrogate(
            log_prob,
            batch.behaviour_log_prob,
            batch.advantage,
            divergence,
            coefficient=kl_coefficient,
            hinge_target=config.kl_target,
            hinge_coefficient=config.kl_hinge_coefficient,
        )
    return (batch.weight * each).sum(), (batch.weight * divergence).sum()


def value_loss(value: Tensor, batch: Minibatch, config: DppoConfig) -> Tensor:
    """Half the squared error of the values, [], clipped if the config says so."""
    if config.value_clip_range:
        each = clipped_value_loss(
            value, batch.behaviour_value, batch.return_, config.value_clip_range
        )
    else:
        each = 0.5 * (value - batch.return_).square()
    return (batch.weight * each).sum()


def dppo_loss(
    policy: Distribution,
    value: Tensor,
    batch: Minibatch,
    config: DppoConfig,
    *,
    trains_policy: bool,
    trains_value: bool,
    kl_coefficient: float,
) -> DppoLoss:
    """The loss of one sub-step.

    Heess et al. 2017, algorithm 3 (https://arxiv.org/abs/1707.02286): policy sub-steps and value
    sub-steps of an iteration, here side by side as long as both last.

    Args:
      policy: the policy being trained, batch shape [T, n].
      value: [T, n] its values.
      batch: what happened.
      config: the weights of the parts.
      trains_policy: whether the sub-step is one of the policy's.
      trains_value: whether it is one of the value's.
      kl_coefficient: of the adaptive penalty.
    """
    surrogate, kl = policy_loss(policy, batch, config, kl_coefficient)
    error = value_loss(value, batch, config)
    entropy = (batch.weight * policy.entropy()).sum()
    loss = torch.zeros(())
    if trains_policy:
        loss = loss + surrogate - config.entropy_coefficient * entropy
    if trains_value:
        loss = loss + config.value_coefficient * error
    with torch.no_grad():
        ratio = torch.exp(policy.log_prob(batch.action) - batch.behaviour_log_prob)
        outside = ((ratio - 1).abs() > config.clip_range).to(torch.float32)
        clip_fraction = (batch.weight * outside).sum()
    return DppoLoss(loss, surrogate, error, entropy, kl, clip_fraction)
