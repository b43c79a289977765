"""Applies gradients to weights: the one file of this service that needs torch.

Installed with the extra `gradients`; imported when the first weights of a run come whose topology
has the parameter server apply gradients, and not otherwise.
"""

import time
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from mycelia_algorithms.ops.normalisation import merge_statistics
from mycelia_algorithms.optim.clip import shorten
from mycelia_algorithms.optim.factory import Optimizer, build_optimizer
from mycelia_algorithms.optim.schedules import LearningRate
from mycelia_core.config import GradientsConfig

_NO_CLIPPING = float("inf")


class Applier:
    """The weights in one vector, and the optimizer that moves them. One caller at a time.

    Attributes:
      optimizer_seconds: how long norms, clipping and steps have taken so far.
      learning_rate: of the last step.
      gradient_norm: of the last gradient, before clipping.
    """

    merge_statistics = staticmethod(merge_statistics)
    """Merges increments into running statistics; here because the formula is a library's."""

    def __init__(
        self,
        values: NDArray[np.float32],
        config: GradientsConfig,
        max_updates: int,
        first_update: int = 0,
    ) -> None:
        """Starts the optimizer afresh.

        Args:
          values: [P] the weights; changed in place from now on.
          config: which optimizer, how large its steps.
          max_updates: where a falling learning rate has fallen as far as it does.
          first_update: how many updates went before; the schedule goes on from there.
        """
        torch.set_num_threads(1)
        self._values = torch.from_numpy(values)
        self._max_norm = config.max_grad_norm or _NO_CLIPPING
        self._schedule = _schedule(config, max_updates)
        self._optimizer: Optimizer = build_optimizer(
            config.optimizer,
            self._values,
            epsilon=config.epsilon,
            decay=config.decay,
            momentum=config.momentum,
        )
        self._first_update = first_update
        self.optimizer_seconds = 0.0
        self.learning_rate = 0.0
        self.gradient_norm = 0.0

    @property
    def update_count(self) -> int:
        """How many updates have been made in all; the schedule follows it."""
        return self._first_update + self._optimizer.step_count

    def norm(self, gradient: NDArray[np.float32]) -> float:
        """Returns the Euclidean norm of a gradient [P]."""
        start = time.perf_counter()
        norm = float(torch.linalg.vector_norm(torch.from_numpy(gradient)))
        self.optimizer_seconds += time.perf_counter() - start
        return norm

    def apply(self, gradient: NDArray[np.float32], norm: float, scale: float = 1.0) -> None:
        """Clips the gradient and takes one step.

        Args:
          gradient: [P] the mean over all samples of the update; changed.
          norm: how long it is, with what other servers have of it; finite.
          scale: multiplies the step size.
        """
        start = time.perf_counter()
        with torch.no_grad():
            flat = torch.from_numpy(gradient)
            shorten(flat, torch.tensor(norm), self._max_norm)
            self.gradient_norm = norm
            self.learning_rate = scale * self._schedule.at(self.update_count)
            self._optimizer.step(flat, self.learning_rate)
        self.optimizer_seconds += time.perf_counter() - start

    def state(self) -> dict[str, NDArray[Any]]:
        """Returns copies of the optimizer's vectors, by name."""
        return {name: vector.numpy().copy() for name, vector in self._optimizer.state().items()}

    @property
    def step_count(self) -> int:
        """How many of them this optimizer has made."""
        return self._optimizer.step_count

    def load(self, state: Mapping[str, NDArray[Any]], step_count: int) -> None:
        """Goes on from a saved state.

        Raises:
          ValueError: the state is another optimizer's, or of other weights.
        """
        vectors = self._optimizer.state()
        if set(state) != set(vectors):
            raise ValueError(f"optimizer: got {sorted(state)}, expected {sorted(vectors)}")
        for name, vector in vectors.items():
            if state[name].shape != tuple(vector.shape):
                raise ValueError(
                    f"optimizer/{name}: got {state[name].shape}, expected {tuple(vector.shape)}"
                )
            vector.copy_(torch.from_numpy(state[name].copy()))
        self._optimizer.step_count = step_count


def _schedule(config: GradientsConfig, max_updates: int) -> LearningRate:
    if config.schedule == "constant":
        return LearningRate(base=config.learning_rate, warmup_steps=config.warmup_updates)
    return LearningRate(
        base=config.learning_rate,
        warmup_steps=config.warmup_updates,
        decay_until_step=max_updates,
        final_fraction=config.final_fraction,
        shape=config.schedule,
    )
