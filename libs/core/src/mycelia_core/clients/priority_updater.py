"""Sends new priorities in the background, many updates in one request."""

import threading
import time
from types import TracebackType
from typing import TYPE_CHECKING, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mycelia_core.rpc.errors import InvalidArgumentError, StatusError, UnavailableError

if TYPE_CHECKING:
    from mycelia_core.clients.replay import ReplayClient
    from mycelia_core.clients.sharded_replay import ShardedReplayClient

MOST_KEYS = 16_384
"""How many priorities one request holds: 256 KB of payload."""

MOST_PENDING_KEYS = 4 * MOST_KEYS
"""How many may wait to be sent before `submit` waits."""


class PriorityUpdater:
    """Updates priorities without making its caller wait for the server.

    Updates are sent in the order submitted; what gathers while a request is
    under way goes together with the next one. Any thread may use it.
    """

    def __init__(
        self, client: "ReplayClient | ShardedReplayClient", table: str, *, timeout: float = 10.0
    ) -> None:
        """Starts a daemon thread.

        Args:
          client: whose server and run to update.
          table: the table's name.
          timeout: seconds that the server may take for a request.
        """
        self.applied_count = 0
        """How many updates were applied so far."""
        self.stale_count = 0
        """How many were of items that were gone."""
        self._client = client
        self._table = table
        self._timeout = timeout
        self._changed = threading.Condition()
        self._pending: list[tuple[NDArray[np.int64], NDArray[np.float64]]] = []
        self._pending_keys = 0
        self._is_sending = False
        self._failure: StatusError | TimeoutError | None = None
        self._closing = False
        self._thread = threading.Thread(target=self._run, name=f"update {table}", daemon=True)
        self._thread.start()

    def submit(self, item_keys: NDArray[np.int64], priorities: ArrayLike) -> None:
        """Takes in updates to be sent; both are copied. Waits while too many are pending.

        Args:
          item_keys: int64 [n], as `Batch` has them.
          priorities: [n], finite and at least 0; before the table's exponent.

        Raises:
          StatusError: the server refused an update before, or cannot be reached.
          TimeoutError: it did not answer in time.
          InvalidArgumentError: the lists differ in length.
        """
        keys, values = np.array(item_keys, np.int64), np.array(priorities, np.float64)
        if keys.shape != values.shape or keys.ndim != 1:
            raise InvalidArgumentError(
                f"priorities: got {list(values.shape)} for item_keys {list(keys.shape)}"
            )
        if not len(keys):
            return
        with self._changed:
            while self._pending_keys > MOST_PENDING_KEYS and not self._failure:
                self._changed.wait()
            self._check()
            self._pending.append((keys, values))
            self._pending_keys += len(keys)
            self._changed.notify_all()

    def flush(self, timeout: float) -> None:
        """Waits until everything submitted has been answered; raises like `submit`."""
        deadline = time.monotonic() + timeout
        with self._changed:
            while (self._pending or self._is_sending) and not self._failure:
                if time.monotonic() >= deadline:
                    raise TimeoutError(f"{self._pending_keys} updates not sent in {timeout:g} s")
                self._changed.wait(max(0.0, deadline - time.monotonic()))
            self._check()

    def close(self) -> None:
        """Ends the thread; what is still pending is lost."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        self._thread.join(timeout=1.0)

    def __enter__(self) -> Self:
        """Returns itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Closes the updater."""
        self.close()

    def _check(self) -> None:
        if self._failure:
            raise self._failure
        if self._closing:
            raise UnavailableError("the updater has been closed")

    def _run(self) -> None:
        while True:
            keys, priorities = self._take()
            if not len(keys):
                return
            failure: StatusError | TimeoutError | None = None
            applied = stale = 0
            try:
                applied, stale = self._client.update_priorities(
                    self._table, keys, priorities, timeout=self._timeout
                )
            except (StatusError, TimeoutError) as error:
                failure = error
            with self._changed:
                self.applied_count += applied
                self.stale_count += stale
                self._failure = failure
                self._is_sending = False
                self._changed.notify_all()
                if failure:
                    return

    def _take(self) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Waits for updates and returns the next request's; none when the updater closes."""
        with self._changed:
            while not self._pending and not self._closing:
                self._changed.wait()
            if self._closing:
                return np.empty(0, np.int64), np.empty(0)
            count = taken = 0
            while taken < len(self._pending) and (
                not taken or count + len(self._pending[taken][0]) <= MOST_KEYS
            ):
                count += len(self._pending[taken][0])
                taken += 1
            parts, self._pending = self._pending[:taken], self._pending[taken:]
            self._pending_keys -= count
            self._is_sending = True
            self._changed.notify_all()
        keys = np.concatenate([keys for keys, _ in parts])
        return keys, np.concatenate([priorities for _, priorities in parts])
