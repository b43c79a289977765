"""Priorities on their way back to the replay table, off the training loop."""

import logging
import threading
from collections import deque

import numpy as np
from numpy.typing import NDArray

from mycelia_core.clients.sharded_replay import AnyReplayClient
from mycelia_core.rpc.errors import StatusError

MAX_WAITING_BATCHES = 256
LINGER_SECONDS = 0.005
"""How long to gather batches before they are sent together: a call costs more than a row."""

CALL_SECONDS = 5.0

logger = logging.getLogger(__name__)


class PriorityWriter:
    """Sends new priorities from a thread of its own, several batches in one call.

    If the server is slower than the learner, the oldest waiting batches are dropped and counted:
    their items keep the priorities that they have. One thread calls `put`.
    """

    def __init__(self, client: AnyReplayClient, table: str) -> None:
        """Starts the thread."""
        self._client = client
        self._table = table
        self._changed = threading.Condition()
        self._waiting: deque[tuple[NDArray[np.int64], NDArray[np.float64]]] = deque()
        self._closing = False
        self.dropped_batches = 0
        """Batches that were never sent, or whose call failed."""
        self._thread = threading.Thread(target=self._run, name="priorities", daemon=True)
        self._thread.start()

    def put(self, item_keys: NDArray[np.int64], priorities: NDArray[np.float64]) -> None:
        """Takes the priorities [B] of one batch; never waits."""
        with self._changed:
            if len(self._waiting) == MAX_WAITING_BATCHES:
                self._waiting.popleft()
                self.dropped_batches += 1
            self._waiting.append((item_keys, priorities))
            if len(self._waiting) == 1:
                self._changed.notify()

    def close(self, timeout: float) -> None:
        """Sends what waits and ends the thread, in at most `timeout` seconds."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join(timeout)

    def _run(self) -> None:
        while batches := self._take():
            keys = np.concatenate([keys for keys, _ in batches])
            priorities = np.concatenate([values for _, values in batches])
            try:
                self._client.update_priorities(self._table, keys, priorities, timeout=CALL_SECONDS)
            except (StatusError, TimeoutError) as error:
                with self._changed:
                    self.dropped_batches += len(batches)
                logger.warning("priorities of %d batches were lost: %s", len(batches), error)

    def _take(self) -> list[tuple[NDArray[np.int64], NDArray[np.float64]]]:
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._closing)
            if not self._closing:
                self._changed.wait_for(lambda: self._closing, LINGER_SECONDS)
            batches = list(self._waiting)
            self._waiting.clear()
            return batches
