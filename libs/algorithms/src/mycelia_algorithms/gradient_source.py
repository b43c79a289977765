"""What an algorithm is to a worker that pushes gradients: the role its loop plays with.

source = load_gradient_source(name)(config, network=..., seed=...)
source.load(weights)
while training:
    rollout = ... source.act(observation, first) ... source.value(observation, state) ...
    for index in range(source.begin(rollout)):
        gradient = source.gradient(index)
        ... push gradient.tensors; load what comes back ...
        if not source.goes_on(metrics of all workers): break
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from numpy.typing import NDArray
from torch import Tensor

from mycelia_algorithms.networks.actor_critic import ActorCriticSpec, State
from mycelia_algorithms.rollout import Rollout

Tensors = Mapping[str, NDArray[Any]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Gradient:
    """One gradient on its way to the parameter server."""

    tensors: Tensors
    """The gradient of each parameter, by name. Valid until the next one is computed."""

    sample_count: int
    """How many steps it is the mean over: its weight among those of other workers."""

    metrics: Mapping[str, float]
    """Scalars by glossary name."""

    statistics: Tensors = field(default_factory=dict)
    """What is to be merged into the running statistics, by their names; may be empty."""


class GradientSource(Protocol):
    """Acts, and computes gradients from what came of it. One thread owns it."""

    rollout_steps: int
    """T, how many steps a rollout has."""

    def __init__(
        self, config: Any, *, network: ActorCriticSpec, seed: int, worker_seed: int
    ) -> None:
        """Builds the network, its weights drawn from `seed`, which all workers share."""

    def initial_weights(self) -> dict[str, NDArray[Any]]:
        """The seeded weights, and the statistics of nothing seen yet."""

    def load(self, tensors: Tensors, version: int) -> None:
        """Acts and differentiates at these weights from now on.

        Raises:
          ValueError: if a tensor is missing, unknown or of another shape; names it.
        """

    def act(
        self, observation: Tensor, first: Tensor, state: State | None
    ) -> tuple[Tensor, State | None]:
        """Chooses actions in N states [N, ...]; returns them, [N, ...], and the LSTM's state."""

    def value(self, observation: Tensor, state: State | None) -> Tensor:
        """The values [E] of states [E, ...] that follow on from LSTM states [E, H]."""

    def begin(self, rollout: Rollout) -> int:
        """Takes a rollout in and returns how many gradients to compute from it.

        One after the other, each at the weights that the one before has led to.
        """

    def gradient(self, index: int) -> Gradient:
        """Computes gradient `index` of the rollout at the weights loaded last."""

    def goes_on(self, metrics: Mapping[str, float]) -> bool:
        """Whether to go on with this rollout, after all workers' mean metrics of a gradient."""
