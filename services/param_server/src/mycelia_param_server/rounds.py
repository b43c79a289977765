"""Synchronous rounds: whose gradients are in, how many are enough, and their mean."""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping

import numpy as np
from numpy.typing import NDArray

from mycelia_param_server.gradient_intake import PartIds, Push
from mycelia_param_server.mean import GradientSum
from mycelia_param_server.push_log import Answer


class Round:
    """The sum of the gradients that were computed at one version.

    The event loop owns `came`, `closed` and `timer`; whoever adds and averages, one caller at a
    time, the rest.
    """

    def __init__(self, version: int, size: int) -> None:
        """Starts with none of `size` weights each."""
        self.version = version
        self.open_time = time.monotonic()
        """When it was opened, by its first push."""
        self.came: set[str] = set()
        """The workers whose gradients are in."""
        self.closed: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        """What those workers are told."""
        self.timer: asyncio.TimerHandle | None = None
        self.statistics: list[Mapping[str, NDArray[np.float64]]] = []
        """Increments to be merged."""
        self.elsewhere: list[PartIds] = []
        """The parts of the gradients that shards keep."""
        self._sum = GradientSum(size)
        self._metrics: Counter[str] = Counter()
        self._metric_samples: Counter[str] = Counter()

    def add(self, push: Push) -> None:
        """Adds a gradient, weighted by its sample count."""
        self._sum.add(push.gradient, push.sample_count)
        for name, value in push.metrics.items():
            self._metrics[name] += value * push.sample_count  # type: ignore[assignment]
            self._metric_samples[name] += push.sample_count
        if push.statistics:
            self.statistics.append(push.statistics)
        self.elsewhere.append(push.elsewhere)

    def mean(self) -> NDArray[np.float32]:
        """Returns [P] the mean over all samples of all workers."""
        return self._sum.mean()

    def mean_metrics(self) -> dict[str, float]:
        """Returns each metric's mean over the samples of the workers that sent it."""
        return {name: self._metrics[name] / n for name, n in self._metric_samples.items()}


class Rounds:
    """Who is waited for. One event loop owns it."""

    def __init__(self, workers: int, drop: int, is_gone: Callable[[str], bool]) -> None:
        """Waits for W workers at first, wherever they are.

        Args:
          workers: W.
          drop: D, how many of those that take part need not come.
          is_gone: whether a worker has left the run, or its lease has ended.
        """
        self._drop = drop
        self._is_gone = is_gone
        self.active: set[str] = set()
        """The workers that take part."""
        self.unseen = workers
        """How many more are waited for that have not come so far."""

    @property
    def worker_count(self) -> int:
        """How many workers the open round counts on."""
        return len(self.active) + self.unseen

    def restore(self, active: Iterable[str], unseen: int) -> None:
        """Goes on with the workers of a checkpoint."""
        self.active, self.unseen = set(active), unseen

    def enter(self, worker_id: str) -> None:
        """Notes that a worker takes part: in the open round, and in the next ones."""
        if worker_id not in self.active:
            self.active.add(worker_id)
            self.unseen = max(0, self.unseen - 1)

    def is_full(self, came: set[str]) -> bool:
        """Whether enough have come; those that are gone are no longer waited for."""
        self.active = {worker for worker in self.active if not self._is_gone(worker)} | came
        return bool(came) and len(came) >= max(1, self.worker_count - self._drop)

    def drop_absent(self, came: set[str]) -> int:
        """Goes on without those that did not come by the deadline; returns how many.

        One that comes back takes part again.
        """
        absent = self.worker_count - len(came)
        self.active = set(came)
        self.unseen = 0
        return absent
