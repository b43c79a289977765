"""Dynamic batching: what comes within a few milliseconds is evaluated together."""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from mycelia_actor.inference.batch import Answer, Job, evaluate
from mycelia_actor.inference.network import SlotNetwork
from mycelia_actor.inference.slots import Lease
from mycelia_core.rpc.errors import UnavailableError
from mycelia_core.weights import Weights

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class BatchFigures:
    """What the batcher has done so far. Written by its thread."""

    requests: int = 0
    rows: int = 0
    batches: int = 0
    wait_seconds: float = 0.0
    """How long requests waited for their batch to be closed, summed."""

    compute_seconds: float = 0.0


class Batcher:
    """Evaluates requests in batches, on a thread of its own. Any thread may submit.

    A batch is closed when it has `max_batch` rows, when every stream that is open has a
    request in it, so that nobody is left to wait for, or when its oldest request has waited
    for the deadline. Requests that come while a batch is evaluated make up the next one.
    Weights are swapped between batches.
    """

    def __init__(
        self,
        network: SlotNetwork,
        newest_weights: Callable[[], Weights | None],
        *,
        slot_count: int,
        max_batch: int,
        deadline_seconds: float,
    ) -> None:
        """Starts the thread.

        Args:
          network: remembers `slot_count` slots; the batcher's thread owns it from now on.
          newest_weights: returns the newest weights there are, without waiting.
          slot_count: how many slots there are.
          max_batch: rows of a batch at most; a larger request is a batch of its own.
          deadline_seconds: how long a request waits at most for others.
        """
        self.figures = BatchFigures()
        self.policy_version = 0
        self.failure: Exception | None = None
        """Why it ended, if it failed: such weights or such a network cannot be evaluated."""

        self._network = network
        self._newest_weights = newest_weights
        self._max_batch = max_batch
        self._deadline_seconds = deadline_seconds
        self._changed = threading.Condition()
        self._waiting: deque[Job] = deque()
        self._waiting_rows = 0
        self._waiting_leases: set[Lease] = set()
        self._stream_count = 0
        self._taken = np.zeros(slot_count, np.bool_)
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="batcher", daemon=True)
        self._thread.start()

    def submit(self, job: Job) -> None:
        """Has a request evaluated with the next batch that has room for it. Does not wait.

        Raises:
          UnavailableError: the batcher has ended.
        """
        with self._changed:
            if self._closing:
                raise UnavailableError("the server is stopping")
            was_empty = not self._waiting
            self._waiting.append(job)
            self._waiting_rows += len(job.rows)
            self._waiting_leases.add(job.lease)
            if was_empty or self._is_full():
                self._changed.notify()

    def set_stream_count(self, count: int) -> None:
        """Tells how many streams are open: how many requests there may be to wait for."""
        with self._changed:
            self._stream_count = count
            self._changed.notify()

    def close(self) -> None:
        """Fails what is waiting with `UnavailableError` and ends the thread."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join(timeout=5.0)

    def _run(self) -> None:
        try:
            while jobs := self._next_batch():
                self._evaluate(jobs)
        except Exception as error:
            logger.debug("the batcher failed", exc_info=error)
            self.failure = error
        self._send_away()

    def _next_batch(self) -> list[Job]:
        """Waits for a batch to be closed; nothing once the batcher is closing."""
        jobs: list[Job] = []
        with self._changed:
            while not jobs and not self._closing:
                # A wait without work ends with `submit` or `close`, which both notify.
                self._changed.wait_for(lambda: self._waiting or self._closing, timeout=1.0)
                self._wait_for_more()
                jobs = [] if self._closing else self._take()
        return jobs

    def _wait_for_more(self) -> None:
        while self._waiting and not self._closing and not self._is_full():
            left = self._waiting[0].arrival_time + self._deadline_seconds - time.monotonic()
            if left <= 0:
                return
            self._changed.wait(left)

    def _is_full(self) -> bool:
        return (
            self._waiting_rows >= self._max_batch or len(self._waiting_leases) >= self._stream_count
        )

    def _take(self) -> list[Job]:
        """Takes jobs in order until the batch is full, or a slot would come twice."""
        jobs: list[Job] = []
        row_count = 0
        self._taken[:] = False
        while self._waiting:
            job = self._waiting[0]
            if jobs and row_count + len(job.rows) > self._max_batch:
                break
            slots = job.slots
            if not job.lease.ended:
                if self._taken[slots].any():
                    break
                self._taken[slots] = True
                jobs.append(job)
                row_count += len(job.rows)
            self._waiting.popleft()
            self._waiting_rows -= len(job.rows)
        self._waiting_leases = {job.lease for job in self._waiting}
        return jobs

    def _evaluate(self, jobs: list[Job]) -> None:
        start = time.monotonic()
        try:
            self._refresh_weights()
            outputs = evaluate(self._network, jobs)
        except Exception as error:
            for job in jobs:
                job.done(UnavailableError(f"the server cannot evaluate its network: {error}"))
            raise
        compute_seconds = time.monotonic() - start
        self._count(jobs, start, compute_seconds)
        row_count = sum(len(job.rows) for job in jobs)
        for job, columns in zip(jobs, outputs, strict=True):
            wait_seconds = start - job.arrival_time
            job.done(Answer(columns, self.policy_version, row_count, wait_seconds, compute_seconds))

    def _refresh_weights(self) -> None:
        weights = self._newest_weights()
        if weights is not None and weights.version != self.policy_version:
            self._network.use(weights)
            self.policy_version = weights.version

    def _count(self, jobs: list[Job], start: float, compute_seconds: float) -> None:
        figures = self.figures
        figures.requests += len(jobs)
        figures.rows += sum(len(job.rows) for job in jobs)
        figures.batches += 1
        figures.wait_seconds += sum(start - job.arrival_time for job in jobs)
        figures.compute_seconds += compute_seconds

    def _send_away(self) -> None:
        with self._changed:
            self._closing = True
            waiting, self._waiting = list(self._waiting), deque()
        for job in waiting:
            job.done(UnavailableError("the server is stopping"))
