"""A stream of inserts that survives the loss of its connection."""

import math
import threading
import time
from collections import deque
from collections.abc import Iterable
from queue import SimpleQueue
from typing import TYPE_CHECKING

import grpc

from mycelia.replay.v1 import replay_pb2 as pb
from mycelia_core.clients.resuming import final_failure
from mycelia_core.clients.waiting import Backoff, StoppedError
from mycelia_core.rpc.errors import StatusError
from mycelia_core.rpc.insert_wire import Insert

if TYPE_CHECKING:
    from mycelia_core.clients.replay import ReplayClient

CHECK_SECONDS = 0.1
"""How soon a wait notices that it is to end early."""


class BackPressureTimeout(TimeoutError):  # noqa: N818 - it is one
    """The server did not acknowledge in time: it is closed to inserts, or away."""


class InsertStream:
    """Sends requests in order and keeps each until it is acknowledged.

    One thread submits. A daemon thread of the stream's own reads the
    acknowledgements; when the connection is lost it connects again, with
    back-off, and sends again whatever was not acknowledged. That is safe: the
    server drops rows that it has.
    """

    def __init__(
        self,
        client: "ReplayClient",
        name: str,
        max_in_flight: int,
        stop: threading.Event | None,
    ) -> None:
        """Starts the thread; `name` says in errors and logs where the stream goes."""
        self.wait_seconds = 0.0
        """How long submits and drains have waited so far."""
        self.stored_row_count = 0
        """Rows that the server has stored."""
        self._client = client
        self._lost_since = math.inf
        self._name = name
        self._max_in_flight = max_in_flight
        self._stop = stop or threading.Event()
        self._changed = threading.Condition()
        self._unacknowledged: deque[Insert] = deque()
        self._outbox: SimpleQueue[Insert | None] = SimpleQueue()
        self._sequence = 0
        self._failure: StatusError | TimeoutError | None = None
        self._closing = threading.Event()
        self._call: grpc.Call | None = None
        self._thread = threading.Thread(target=self._run, name=f"insert {name}", daemon=True)
        self._thread.start()

    @property
    def lost_seconds(self) -> float:
        """For how long the server has not been there; 0 while it is."""
        return max(0.0, time.monotonic() - self._lost_since)

    @property
    def has_room(self) -> bool:
        """Whether a submit would not wait.

        Raises:
          StatusError: the server has refused a request.
        """
        self._check()
        return len(self._unacknowledged) < self._max_in_flight

    def wait_for_room(self, timeout: float) -> None:
        """Waits until fewer than `max_in_flight` requests are unacknowledged.

        Raises:
          BackPressureTimeout: none was acknowledged in time.
          StatusError: the server has refused a request.
          StoppedError: the stop event was set.
        """
        self._wait(self._max_in_flight - 1, timeout)

    def wait_until_acknowledged(self, timeout: float) -> None:
        """Waits until every request is acknowledged; raises like `wait_for_room`."""
        self._wait(0, timeout)

    def submit(self, requests: Iterable[Insert]) -> None:
        """Sends requests, giving each its sequence number. Does not wait."""
        with self._changed:
            for request in requests:
                self._sequence += 1
                request.sequence = self._sequence
                self._unacknowledged.append(request)
                self._outbox.put(request)

    def close(self) -> None:
        """Ends the stream; what is not acknowledged yet may be lost."""
        self._closing.set()
        with self._changed:
            call = self._call
            if call and self._unacknowledged:
                call.cancel()
            self._outbox.put(None)
        self._thread.join(timeout=1.0)
        if call:
            call.cancel()

    def _wait(self, most: int, timeout: float) -> None:
        start = time.monotonic()
        with self._changed:
            while len(self._unacknowledged) > most:
                self._check()
                if self._stop.is_set():
                    raise StoppedError(f"insert into {self._name}: stopped while waiting")
                now = time.monotonic()
                if now - start >= timeout:
                    raise BackPressureTimeout(
                        f"insert into {self._name}: {len(self._unacknowledged)} requests "
                        f"not acknowledged for {timeout:g} s"
                    )
                self._changed.wait(min(CHECK_SECONDS, start + timeout - now))
                self.wait_seconds += time.monotonic() - now
        self._check()

    def _check(self) -> None:
        if self._failure:
            raise self._failure

    def _run(self) -> None:
        backoff = Backoff()
        while not self._closing.is_set():
            try:
                self._converse(backoff)
            except (grpc.RpcError, ValueError) as error:
                failure = final_failure(error, f"Insert into {self._name}")
                if failure:
                    self._fail(failure)
                    return
                self._lost_since = min(self._lost_since, time.monotonic())
            self._closing.wait(backoff.next_seconds())
            if not math.isinf(self._lost_since):
                self._client.find_again()

    def _converse(self, backoff: Backoff) -> None:
        """Makes one call, sends what is not acknowledged, and takes acknowledgements."""
        with self._changed:
            self._outbox.put(None)  # lets go of the thread that fed the call before
            outbox: SimpleQueue[Insert | None] = SimpleQueue()
            self._outbox = outbox
            for request in self._unacknowledged:
                outbox.put(request)
            if self._closing.is_set():
                outbox.put(None)
            self._call = call = self._client.insert(iter(outbox.get, None))
        if not math.isinf(self._lost_since):
            # Comes at once from a server that is there, even one that is closed to inserts.
            call.initial_metadata()
            if call.is_active():
                self._lost_since = math.inf
        for response in call:
            backoff.reset()
            self._acknowledge(response)

    def _acknowledge(self, response: pb.InsertResponse) -> None:
        with self._changed:
            while self._unacknowledged and self._unacknowledged[0].sequence <= response.sequence:
                self._unacknowledged.popleft()
            self.stored_row_count += response.stored_row_count
            self._changed.notify_all()

    def _fail(self, failure: StatusError | TimeoutError) -> None:
        with self._changed:
            self._failure = failure
            self._changed.notify_all()
