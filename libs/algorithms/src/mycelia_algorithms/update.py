"""What every algorithm's update is: the role that the learner's loop plays with.

update = UpdateClass(config, network=..., optimizer=..., seed=...)
while training:
    result = update.update(batch)
    ... result.priorities, result.metrics ...
    if it is time: publish(update.weights()), save(update.state())
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mycelia_algorithms.networks.spec import QNetworkSpec
from mycelia_algorithms.optim.schedules import LearningRate


@dataclass(frozen=True, kw_only=True, slots=True)
class ReplayBatch:
    """B windows of W rows, time first, as a replay table hands them out."""

    columns: Mapping[str, Tensor]
    """Every column, [W, B, ...]: `observation`, `action`, `reward`, `terminated` and so on."""

    row_counts: Tensor
    """[B] integer: how many rows of each window are real; the rest repeat the last real one."""

    probabilities: Tensor
    """[B] float64: the probability with which each window was drawn."""

    item_count: int
    """How many items the table held then."""

    context_rows: int = 0
    """How many of the W rows come before the window's first one, for stacks of frames."""

    def to(self, device: torch.device) -> "ReplayBatch":
        """Returns the batch on a device; itself if it is there already."""
        if self.row_counts.device == device:
            return self
        return ReplayBatch(
            columns={name: column.to(device) for name, column in self.columns.items()},
            row_counts=self.row_counts.to(device),
            probabilities=self.probabilities.to(device),
            item_count=self.item_count,
            context_rows=self.context_rows,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class UpdateResult:
    """What one update brought forth."""

    priorities: NDArray[np.float64] | None
    """[B] new priorities, before the exponent; None if the update was skipped."""

    metrics: Mapping[str, Tensor | float]
    """Scalars by glossary name. Tensors, so that whoever reads none of them waits for none."""


@dataclass(frozen=True, kw_only=True, slots=True)
class UpdateState:
    """All that an exact continuation needs."""

    tensors: Mapping[str, Tensor]
    """Copies: `network/...`, `target/...`, `optimizer/...`."""

    scalars: Mapping[str, Any]
    """JSON: counters."""


@dataclass(frozen=True, kw_only=True, slots=True)
class OptimizerSpec:
    """How gradients become steps."""

    learning_rate: LearningRate
    """The rate of every learner step."""

    adam_epsilon: float = 1e-8
    """Adam's epsilon, beside the root."""

    max_grad_norm: float = 10.0
    """The length that the whole gradient is clipped to."""


class Update(Protocol):
    """Turns batches into better weights. One thread owns it."""

    def __init__(
        self,
        config: Any,
        *,
        network: QNetworkSpec,
        optimizer: OptimizerSpec,
        seed: int,
        device: str = "cpu",
    ) -> None:
        """Builds networks and optimizer; `config` is the algorithm's own config class."""

    @property
    def learner_step(self) -> int:
        """How many optimizer steps have been taken."""

    @property
    def skipped_updates(self) -> int:
        """How many updates were skipped because loss or gradient was not finite."""

    def update(self, batch: ReplayBatch) -> UpdateResult:
        """Takes one optimizer step, or skips it if loss or gradient is not finite."""

    def weights(self) -> dict[str, Tensor]:
        """Copies the weights that actors act with."""

    def state(self) -> UpdateState:
        """Copies everything that `load_state` needs to go on as if nothing had happened."""

    def load_state(self, state: UpdateState) -> None:
        """Goes on from `state`.

        Raises:
          ValueError: if a tensor is missing, unknown or of another shape; names it.
        """
