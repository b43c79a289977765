"""The weights that gradients are applied to, at full precision."""

import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mycelia_core.config import GradientsConfig, RunConfig
from mycelia_core.parts import tensor_spec
from mycelia_core.rpc.errors import FailedPreconditionError
from mycelia_core.weights import WIRE_DTYPES, Weights
from mycelia_param_server.layout import Layout
from mycelia_param_server.snapshot import FlatSnapshot, Timing

if TYPE_CHECKING:
    from mycelia_param_server.applier import Applier

Statistics = Mapping[str, NDArray[np.float64]]


class MasterWeights:
    """One run's weights, running statistics and optimizer. One caller at a time."""

    def __init__(
        self,
        weights: Weights,
        layout: Layout,
        config: GradientsConfig,
        max_updates: int,
        wire_dtype: np.dtype[Any],
    ) -> None:
        """Takes a copy of the weights. Imports torch, which takes a second or two.

        Raises:
          FailedPreconditionError: torch is not installed.
        """
        self.layout = layout
        self.values = layout.join(weights.tensors)
        """[P] the trained weights."""
        self.statistics: dict[str, NDArray[np.float64]] = {
            name: np.array(weights.tensors[name]) for name in layout.statistics
        }
        self.timing = Timing()
        self._wire_dtype = wire_dtype
        self.first_update = weights.learner_step
        """How many updates went into the published weights."""
        self.applier: Applier = _build_applier(self.values, config, max_updates, self.first_update)

    def norm(self, gradient: NDArray[np.float32]) -> float:
        """Returns the Euclidean norm of a gradient [P]."""
        start = time.perf_counter()
        norm = self.applier.norm(gradient)
        self.timing.update_seconds += time.perf_counter() - start
        return norm

    def update(
        self,
        version: int,
        gradient: NDArray[np.float32],
        norm: float,
        statistics: Iterable[Statistics] = (),
        scale: float = 1.0,
    ) -> FlatSnapshot:
        """Makes the next version.

        Args:
          version: what it is to be called.
          gradient: [P] changed.
          norm: how long the gradient is, with what other servers have of it; finite.
          statistics: increments to be merged.
          scale: multiplies the step size.
        """
        start = time.perf_counter()
        self.applier.apply(gradient, norm, scale)
        for increments in statistics:
            self.statistics |= self.applier.merge_statistics(self.statistics, increments)
        snapshot = self.snapshot(version)
        self.timing.update_seconds += time.perf_counter() - start
        return snapshot

    def snapshot(self, version: int, wire_dtype: np.dtype[Any] | None = None) -> FlatSnapshot:
        """Copies the weights as they are; to be sent as `wire_dtype`, if not as the run's."""
        return FlatSnapshot(
            version=version,
            learner_step=self.applier.update_count,
            layout=self.layout,
            values=self.values.copy(),
            statistics=dict(self.statistics),
            wire_dtype=wire_dtype or self._wire_dtype,
            timing=self.timing,
        )

    def describe(self, snapshot: FlatSnapshot) -> dict[str, Any]:
        """Returns what a checkpoint needs to know beside the vectors."""
        return {
            "version": snapshot.version,
            "learner_step": snapshot.learner_step,
            "publish_time": snapshot.publish_time,
            "names": list(snapshot.tensors()),
            "first_update": self.first_update,
            "step_count": self.applier.step_count,
        }


def build_master(
    config: RunConfig, weights: Weights, vectors: Mapping[str, NDArray[Any]], step_count: int
) -> MasterWeights:
    """Builds what gradients of a run are applied to. Imports torch.

    Args:
      config: the run's.
      weights: this server's part of them; its `learner_step` is how many updates went before the
        optimizer began.
      vectors: the optimizer's, [P] each, if it has made updates.
      step_count: how many it has made.

    Raises:
      ValueError: the weights cannot be trained, or the vectors are another optimizer's.
      FailedPreconditionError: torch is not installed.
    """
    master = MasterWeights(
        weights,
        Layout.of(tensor_spec(name, tensor) for name, tensor in weights.tensors.items()),
        config.gradients,
        config.limits.max_updates,
        WIRE_DTYPES[config.param_server.wire_dtype],
    )
    if step_count:
        master.applier.load(vectors, step_count)
    return master


def _build_applier(
    values: NDArray[np.float32], config: GradientsConfig, max_updates: int, first_update: int
) -> "Applier":
    try:
        from mycelia_param_server.applier import Applier
    except ImportError as error:
        raise FailedPreconditionError(
            f"this parameter server cannot apply gradients, {error}; "
            "install mycelia-param-server[gradients]"
        ) from error
    return Applier(values, config, max_updates, first_update)
