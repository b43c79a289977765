"""An open PushGradients call: requests out, answers in, and a deadline for each."""

import queue
import threading
import time
from collections.abc import Iterable, Iterator

from mycelia.params.v1 import params_pb2 as pb
from mycelia.params.v1 import params_pb2_grpc
from mycelia_core.clients.failures import translated_errors
from mycelia_core.clients.waiting import StoppedError
from mycelia_core.rpc.errors import UnavailableError

STREAM_SECONDS = 3600.0
"""The deadline of a stream."""

WORN_SECONDS = 1800.0
"""After this a new one is opened, between two pushes."""

_CHECK_SECONDS = 0.25
"""How often the watch over the deadline looks at the clock."""


class PushStream:
    """A stream of pushes, each answered before the next. One thread exchanges; any may close."""

    def __init__(
        self, stub: params_pb2_grpc.ParamServiceStub, address: str, stop: threading.Event
    ) -> None:
        """Starts the call.

        Args:
          stub: of the server.
          address: the server's, for errors.
          stop: ends an exchange that waits.
        """
        self._address = address
        self._stop = stop
        self._requests: queue.SimpleQueue[pb.PushGradientsRequest | None] = queue.SimpleQueue()
        self._call = stub.PushGradients(iter(self._requests.get, None), timeout=STREAM_SECONDS)
        self._open_time = time.monotonic()
        self._deadline: float | None = None
        self._closed = threading.Event()
        # gRPC's iterators know one deadline, the call's; each push has one of its own.
        threading.Thread(target=self._watch, name="push-deadline", daemon=True).start()

    @property
    def is_worn(self) -> bool:
        """Whether it is time for a new stream."""
        return time.monotonic() - self._open_time > WORN_SECONDS

    def exchange(
        self, requests: Iterable[pb.PushGradientsRequest], deadline: float
    ) -> Iterator[pb.PushGradientsResponse]:
        """Sends one push and yields its answer's responses.

        Args:
          requests: the push.
          deadline: monotonic seconds at which the exchange ends.

        Raises:
          TimeoutError: the deadline passed.
          StoppedError: `stop` was set.
          StatusError: the server's reason to refuse; `UnavailableError` after `close`.
        """
        self._deadline = deadline
        for request in requests:
            self._requests.put(request)
        try:
            with translated_errors(f"PushGradients at {self._address}"):
                for response in self._call:
                    yield response
                    if response.last:
                        return
            raise UnavailableError(f"PushGradients at {self._address}: the server hung up")
        except UnavailableError:
            self._say_why(deadline)
            raise
        finally:
            self._deadline = None

    def close(self) -> None:
        """Ends the call, at once."""
        self._closed.set()
        self._requests.put(None)
        self._call.cancel()

    def _say_why(self, deadline: float) -> None:
        if self._stop.is_set():
            raise StoppedError("stopped while pushing a gradient")
        if not self._closed.is_set() and time.monotonic() >= deadline:
            raise TimeoutError(f"PushGradients at {self._address}: no answer before the deadline")

    def _watch(self) -> None:
        while not self._closed.wait(_CHECK_SECONDS):
            deadline = self._deadline
            if self._stop.is_set() or (deadline and time.monotonic() >= deadline):
                self._call.cancel()
