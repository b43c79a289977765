"""The training loop: sample, update, write priorities, publish, report, checkpoint."""

import threading
import time

from mycelia_algorithms.update import Update, UpdateResult
from mycelia_core.clients.batches import Batch
from mycelia_core.clients.sharded_sampler import AnySampler
from mycelia_core.clients.waiting import StoppedError
from mycelia_core.config import LearnerConfig
from mycelia_learner.batching import to_tensors
from mycelia_learner.priority_writer import PriorityWriter
from mycelia_learner.publisher import Publisher, Snapshot
from mycelia_learner.reporter import Reporter
from mycelia_learner.saving import Saver


class TrainingLoop:
    """Trains until told to stop. The main thread owns it; what waits is done by others."""

    def __init__(
        self,
        config: LearnerConfig,
        *,
        max_updates: int,
        update: Update,
        sampler: AnySampler,
        priorities: PriorityWriter | None,
        publisher: Publisher,
        reporter: Reporter,
        saver: Saver,
        over: threading.Event,
    ) -> None:
        """Takes its parts.

        Args:
          config: how often to publish and checkpoint, how long to wait.
          max_updates: learner steps after which it is over; 0 for no limit.
          update: what a batch is given to.
          sampler: where batches come from; it must end its waits when `over` is set.
          priorities: where new priorities go; None if the table has no use for them.
          publisher: where weights go.
          reporter: where counters go.
          saver: what writes checkpoints.
          over: ends the training when it is set.
        """
        self._config = config
        self._max_updates = max_updates
        self._update = update
        self._sampler = sampler
        self._priorities = priorities
        self._publisher = publisher
        self._reporter = reporter
        self._saver = saver
        self._over = over
        self._published_step = update.learner_step
        self._next_checkpoint_time = time.monotonic() + config.checkpoint_period_seconds

    def run(self) -> None:
        """Trains until it is over.

        Raises:
          TimeoutError: if no batch came for `sample_timeout_seconds`.
          StatusError: if the replay service refused.
        """
        while (batch := self._sample()) is not None:
            result = self._update.update(to_tensors(batch))
            self._write_priorities(batch, result)
            self._publish_if_due()
            self._reporter.report_if_due(result)
            self._checkpoint_if_due()

    def _sample(self) -> Batch | None:
        is_last = 0 < self._max_updates <= self._update.learner_step
        if is_last or self._over.is_set():
            return None
        try:
            return self._sampler.next(timeout=self._config.sample_timeout_seconds)
        except StoppedError:
            return None

    def _write_priorities(self, batch: Batch, result: UpdateResult) -> None:
        if self._priorities is not None and result.priorities is not None:
            self._priorities.put(batch.item_keys, result.priorities)

    def _publish_if_due(self) -> None:
        step = self._update.learner_step
        if step - self._published_step >= self._config.publish_period_steps:
            self._published_step = step
            self._publisher.put(take_snapshot(self._update))

    def _checkpoint_if_due(self) -> None:
        if time.monotonic() >= self._next_checkpoint_time:
            self._next_checkpoint_time = time.monotonic() + self._config.checkpoint_period_seconds
            self._saver.save_soon()


def take_snapshot(update: Update) -> Snapshot:
    """Copies the weights that actors act with."""
    tensors = {name: tensor.numpy(force=True) for name, tensor in update.weights().items()}
    return Snapshot(update.learner_step, tensors)
