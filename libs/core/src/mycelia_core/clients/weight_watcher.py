"""Follows the newest weights: a stream of versions, and a thread that keeps one open."""

import logging
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING

from mycelia.params.v1 import params_pb2 as pb
from mycelia.params.v1 import params_pb2_grpc
from mycelia_core.clients.failures import translated_errors
from mycelia_core.clients.waiting import Backoff
from mycelia_core.clients.weight_parts import VersionReader, WeightParts
from mycelia_core.rpc.errors import FailedPreconditionError, NotFoundError, StatusError
from mycelia_core.weights import Weights

if TYPE_CHECKING:
    from mycelia_core.clients.params import ParamClient

logger = logging.getLogger(__name__)

STREAM_SECONDS = 600.0
"""The deadline of a stream. It is opened anew after that, which sends nothing twice."""

PART_SECONDS = 10.0
"""The deadline of each part of a version that a shard keeps. Others open the stream anew."""


class WeightStream:
    """An open WatchWeights call: iterates over versions, skipping those it was too slow for.

    One thread iterates; any other may cancel.
    """

    def __init__(
        self,
        stub: params_pb2_grpc.ParamServiceStub,
        address: str,
        run_id: str,
        newer_than: int,
        parts: WeightParts,
    ) -> None:
        """Starts the call. Made by `ParamClient.watch`."""
        self._parts = parts
        self._address = address
        request = pb.WatchWeightsRequest(run_id=run_id, newer_than_version=newer_than)
        self._call = stub.WatchWeights(request, timeout=STREAM_SECONDS)

    def __iter__(self) -> Iterator[Weights]:
        """Yields versions as they come.

        Raises:
          TimeoutError: the stream has been open for its longest time.
          StatusError: the server's reason to end it; `UnavailableError` after `cancel`.
        """
        reader: VersionReader | None = None
        with translated_errors(f"WatchWeights at {self._address}"):
            for response in self._call:
                if response.HasField("header"):
                    reader = self._parts.reader(response.header, timeout=PART_SECONDS)
                if reader:
                    reader.add(response.parts)
                if reader and response.last:
                    if weights := _finish(reader):
                        yield weights
                    reader = None

    def cancel(self) -> None:
        """Ends the call, at once."""
        self._call.cancel()


def _finish(reader: VersionReader) -> Weights | None:
    try:
        return reader.finish()
    except NotFoundError as error:
        # There is a newer version by now, or will be: a shard that lost its part has come back.
        logger.debug("skipped a version: %s", error)
        return None


class WeightWatcher:
    """Keeps the newest weights at hand, from a daemon thread of its own.

    Attributes:
      latest: the newest weights received, or None. Replaced as a whole, so any
        thread may read it at any time.
      received_count: how many versions came; the others were skipped.
      failed: whether the watch ended for good, because the server holds another run.
    """

    def __init__(self, client: "ParamClient") -> None:
        """Starts to watch."""
        self.latest: Weights | None = None
        self.received_count = 0
        self.failed = False
        self._client = client
        self._stopping = threading.Event()
        self._stream: WeightStream | None = None
        self._thread = threading.Thread(target=self._watch, name="weight-watch", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Ends the watch. Waits for its thread, which takes no longer than a moment."""
        self._stopping.set()
        if self._stream:
            self._stream.cancel()
        self._thread.join(timeout=1.0)

    def _watch(self) -> None:
        backoff = Backoff()
        while not self._stopping.is_set():
            try:
                self._follow(backoff)
            except TimeoutError:
                continue
            except FailedPreconditionError as error:
                logger.error("no more weights: %s", error)
                self.failed = True
                return
            except StatusError as error:
                if self._stopping.is_set():
                    return
                logger.warning("lost the stream of weights, opening it anew: %s", error)
            self._stopping.wait(backoff.next_seconds())

    def _follow(self, backoff: Backoff) -> None:
        self._stream = self._client.watch(self.latest.version if self.latest else 0)
        if self._stopping.is_set():
            self._stream.cancel()
        for weights in self._stream:
            self.latest = weights
            self.received_count += 1
            backoff.reset()
