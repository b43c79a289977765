"""A rollout as the minibatches of DPPO's sub-steps."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from mycelia_algorithms.dppo.loss import Minibatch
from mycelia_algorithms.networks.actor_critic import State
from mycelia_algorithms.networks.distributions import Categorical, DiagonalGaussian, Distribution


@dataclass(frozen=True, kw_only=True, slots=True)
class Judged:
    """A rollout with what the policy that acted thinks of it; tensors [T, N, ...]."""

    observation: Tensor
    first: Tensor
    valid: Tensor
    action: Tensor
    behaviour: Distribution
    log_prob: Tensor
    value: Tensor
    advantage: Tensor
    return_: Tensor
    state: State | None


def shuffled(
    judged: Judged, count: int, generator: torch.Generator
) -> Iterator[tuple[Minibatch, State | None]]:
    """Cuts a rollout into `count` minibatches, each step in one of them, at random.

    Without an LSTM steps are shuffled; with one, whole sequences are, for their order matters.
    """
    if judged.state is not None:
        order = torch.randperm(judged.valid.shape[1], generator=generator)
        for columns in order.chunk(count):
            state = (judged.state[0][columns], judged.state[1][columns])
            yield _take(judged, (slice(None), columns)), state
        return
    steps = judged.valid.nonzero(as_tuple=True)
    order = torch.randperm(len(steps[0]), generator=generator)
    for chosen in order.chunk(count):
        yield _take(judged, (steps[0][chosen], steps[1][chosen]), flat=True), None


def _take(judged: Judged, index: tuple[slice | Tensor, Tensor], *, flat: bool = False) -> Minibatch:
    def pick(tensor: Tensor) -> Tensor:
        picked = tensor[index]
        return picked.unsqueeze(0) if flat else picked

    valid = pick(judged.valid)
    count = int(valid.sum())
    return Minibatch(
        observation=pick(judged.observation),
        first=pick(judged.first),
        action=pick(judged.action),
        behaviour=_pick_distribution(judged.behaviour, pick),
        behaviour_log_prob=pick(judged.log_prob),
        behaviour_value=pick(judged.value),
        advantage=pick(judged.advantage),
        return_=pick(judged.return_),
        weight=valid / max(1, count),
        sample_count=count,
    )


def _pick_distribution(
    distribution: Distribution, pick: Callable[[Tensor], Tensor]
) -> Distribution:
    if isinstance(distribution, Categorical):
        return Categorical(pick(distribution.logits))
    assert isinstance(distribution, DiagonalGaussian)
    return DiagonalGaussian(pick(distribution.mean), distribution.log_std)
