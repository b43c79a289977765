"""The learner's counters: told to the registry, and kept for the record."""

import logging
import time
from collections.abc import Mapping

from mycelia.run.v1 import run_pb2 as pb
from mycelia_algorithms.update import Update, UpdateResult
from mycelia_core.clients.membership import Membership
from mycelia_core.clients.sharded_sampler import AnySampler, ShardedSampler
from mycelia_learner.priority_writer import PriorityWriter
from mycelia_learner.publisher import Publisher

PERIOD_SECONDS = 0.25

logger = logging.getLogger(__name__)


class Reporter:
    """Reports a few times a second. The training loop owns it; any thread may read `counters`."""

    def __init__(
        self,
        membership: Membership,
        update: Update,
        publisher: Publisher,
        sampler: AnySampler,
        priorities: PriorityWriter | None,
    ) -> None:
        """Reads from the others when it reports; reports nothing yet."""
        self._membership = membership
        self._update = update
        self._publisher = publisher
        self._sampler = sampler
        self._priorities = priorities
        self._next_time = 0.0
        self._last_result: UpdateResult | None = None
        self._warned_of = update.skipped_updates
        self.counters: Mapping[str, float] = {}
        """By glossary name, as last reported; empty before the first learner step."""

    def report_if_due(self, result: UpdateResult) -> None:
        """Reports now and then: reading the figures costs more than a step should."""
        self._last_result = result
        if time.monotonic() >= self._next_time:
            self._report(result)

    def report_last(self) -> None:
        """Reports what came after the last report."""
        if self._last_result is not None:
            self._report(self._last_result)

    def _report(self, result: UpdateResult) -> None:
        if self._next_time == 0:
            self._membership.set_phase(pb.PHASE_TRAINING)
        self._next_time = time.monotonic() + PERIOD_SECONDS
        self._warn_of_skipped()
        counters = {name: float(value) for name, value in result.metrics.items()}
        counters |= {
            "learner_steps": float(self._update.learner_step),
            "skipped_updates": float(self._update.skipped_updates),
            "policy_version": float(self._publisher.version),
            "sample_wait_seconds": self._sampler.wait_seconds,
            "lost_shards": float(self._lost_shards()),
            "dropped_priority_batches": float(
                self._priorities.dropped_batches if self._priorities else 0
            ),
        }
        self.counters = counters
        self._membership.set_counters(counters)

    def _lost_shards(self) -> int:
        sampler = self._sampler
        return sampler.lost_shard_count if isinstance(sampler, ShardedSampler) else 0

    def _warn_of_skipped(self) -> None:
        skipped = self._update.skipped_updates
        if skipped > self._warned_of:
            logger.warning("%d updates skipped so far: loss or gradient is not finite", skipped)
            self._warned_of = skipped
