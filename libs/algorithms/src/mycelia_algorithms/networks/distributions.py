"""Distributions over actions, made of a policy network's output.

torch.distributions has the same; its checks and views cost several times the arithmetic at the
batch sizes of a worker that acts in a handful of environments.
"""

import math
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional

_LOG_2_PI = math.log(2 * math.pi)


class Distribution(Protocol):
    """One distribution over actions for each of a batch of states."""

    def sample(self, generator: torch.Generator) -> Tensor:
        """Draws an action for each."""

    def mode(self) -> Tensor:
        """The most probable action of each."""

    def log_prob(self, action: Tensor) -> Tensor:
        """The log-probability (or density) of one action for each, [...]."""

    def entropy(self) -> Tensor:
        """The entropy of each, [...], in nats."""


@dataclass(frozen=True, slots=True)
class Categorical:
    """A choice of one of A."""

    logits: Tensor
    """[..., A] unnormalised log-probabilities."""

    def sample(self, generator: torch.Generator) -> Tensor:
        """Draws choices, [...] int64."""
        # The largest of logit + Gumbel noise is distributed as the softmax; -log of an
        # exponential variable is Gumbel noise.
        noise = torch.empty_like(self.logits).exponential_(generator=generator).log_()
        return (self.logits - noise).argmax(dim=-1)

    def mode(self) -> Tensor:
        """The most probable choices, [...] int64."""
        return self.logits.argmax(dim=-1)

    def log_prob(self, action: Tensor) -> Tensor:
        """Log-probabilities of choices [...] integer, [...]."""
        log_probs = functional.log_softmax(self.logits, dim=-1)
        return log_probs.gather(-1, action.to(torch.int64).unsqueeze(-1)).squeeze(-1)

    def entropy(self) -> Tensor:
        """Entropies, [...]."""
        log_probs = functional.log_softmax(self.logits, dim=-1)
        return -(log_probs.exp() * log_probs).sum(dim=-1)


@dataclass(frozen=True, slots=True)
class DiagonalGaussian:
    """D independent normal variables. Log-densities and entropies are summed over them."""

    mean: Tensor
    """[..., D]"""

    log_std: Tensor
    """[..., D], broadcast against `mean`."""

    def sample(self, generator: torch.Generator) -> Tensor:
        """Draws actions, [..., D]."""
        noise = torch.empty_like(self.mean).normal_(generator=generator)
        return self.mean + self.log_std.exp() * noise

    def mode(self) -> Tensor:
        """The means, [..., D]."""
        return self.mean

    def log_prob(self, action: Tensor) -> Tensor:
        """Log-densities of actions [..., D], [...]."""
        distance = (action - self.mean) * torch.exp(-self.log_std)
        each = -0.5 * (distance.square() + _LOG_2_PI) - self.log_std
        return each.sum(dim=-1)

    def entropy(self) -> Tensor:
        """Entropies, [...]."""
        each = 0.5 + 0.5 * _LOG_2_PI + self.log_std
        return each.expand_as(self.mean).sum(dim=-1)


def kl_divergence(before: Distribution, after: Distribution) -> Tensor:
    """KL(before || after) of each pair, [...], exactly.

    Raises:
      TypeError: if they are of different kinds.
    """
    if isinstance(before, Categorical) and isinstance(after, Categorical):
        log_p = functional.log_softmax(before.logits, dim=-1)
        log_q = functional.log_softmax(after.logits, dim=-1)
        return (log_p.exp() * (log_p - log_q)).sum(dim=-1)
    if isinstance(before, DiagonalGaussian) and isinstance(after, DiagonalGaussian):
        variance, other = (2 * before.log_std).exp(), (2 * after.log_std).exp()
        moved = (before.mean - after.mean).square()
        each = after.log_std - before.log_std + (variance + moved) / (2 * other) - 0.5
        return each.sum(dim=-1)
    raise TypeError(f"no divergence from {type(before).__name__} to {type(after).__name__}")
