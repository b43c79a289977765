"""The client of the weight store: gets, publishes and watches weights."""

import threading
import time
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Any, Self

from numpy.typing import NDArray

from mycelia.params.v1 import params_pb2 as pb
from mycelia.params.v1 import params_pb2_grpc
from mycelia.run.v1 import run_pb2, run_pb2_grpc
from mycelia_core.clients.failures import translated_errors
from mycelia_core.clients.split_publish import SplitPublish, find_shards, shard_count
from mycelia_core.clients.waiting import Backoff, NotYetError, poll
from mycelia_core.clients.weight_parts import VersionReader, WeightParts
from mycelia_core.clients.weight_watcher import WeightStream, WeightWatcher
from mycelia_core.parts import split
from mycelia_core.rpc.channel import open_channel
from mycelia_core.rpc.errors import InvalidArgumentError, NotFoundError, UnavailableError
from mycelia_core.weights import (
    WIRE_DTYPES,
    Weights,
    WireDtype,
    make_header,
    narrow,
)

__all__ = ["ParamClient", "WeightWatcher"]

CALL_SECONDS = 5.0
"""The deadline of asking where the shards are."""

GET_ATTEMPTS = 8
"""How often weights are asked for again because a shard has gone on to newer ones meanwhile."""

READ_AHEAD_BYTES = 1024 * 1024
"""How much of the weights may lie unread at a slow reader: what it reads later is older."""


class ParamClient:
    """Talks to the weight store of one run. Any thread may use it.

    Errors: each method raises the `StatusError` that the server meant
    (`UnavailableError` if it cannot be reached), and `TimeoutError` when a
    deadline passes.
    """

    def __init__(self, address: str, run_id: str) -> None:
        """Opens a channel; whether anybody answers shows with the first call."""
        self.address = address
        self.run_id = run_id
        self._channel = open_channel(address, read_ahead_bytes=READ_AHEAD_BYTES)
        self._stub = params_pb2_grpc.ParamServiceStub(self._channel)
        self._registry = run_pb2_grpc.RunServiceStub(self._channel)
        self._parts = WeightParts(run_id)
        self._shard_count = 0

    def get(
        self, newer_than: int = 0, *, version: int = 0, timeout: float = 30.0
    ) -> Weights | None:
        """Returns the newest weights; None if there are none newer than `newer_than`.

        Args:
          newer_than: the version that the caller has; 0 for none.
          version: this version instead, one of the last that the server has returned.
          timeout: seconds for the call.

        Raises:
          NotFoundError: the server no longer keeps `version`; or a shard has lost its part, and
            nothing newer has been published.
        """
        request = pb.GetWeightsRequest(
            run_id=self.run_id, newer_than_version=newer_than, version=version
        )
        deadline, backoff = time.monotonic() + timeout, Backoff(0.01, 0.5)
        for attempt in range(1, GET_ATTEMPTS + 1):
            reader = self._read(request, max(0.0, deadline - time.monotonic()))
            try:
                return reader.finish() if reader else None
            except NotFoundError:
                # Newer versions have come since the header did; one of them is to be had.
                if version or attempt == GET_ATTEMPTS:
                    raise
            time.sleep(backoff.next_seconds())
        return None

    def publish(
        self,
        tensors: Mapping[str, NDArray[Any]],
        learner_step: int,
        expected_version: int,
        *,
        wire_dtype: WireDtype = "float32",
        timeout: float = 60.0,
        stop: threading.Event | None = None,
    ) -> int:
        """Publishes new weights and returns their version.

        A server that is away is tried again until the time is up.

        Args:
          tensors: the weights by name. Not to be changed during the call.
          learner_step: the learner step that they are from.
          expected_version: the version that the caller believes to be the
            newest, 0 if none; the new one is one more.
          wire_dtype: what float32 tensors are sent as; readers widen them again.
          timeout: seconds for all of it.
          stop: ends waiting for a server that is away.

        Raises:
          AbortedError: somebody else has published meanwhile.
          ResourceExhaustedError: the weights are over the server's limit.
          TimeoutError: the server did not take them in time.
          StoppedError: `stop` was set.
        """
        dtype = WIRE_DTYPES[wire_dtype]
        arrays = {name: narrow(array, dtype) for name, array in tensors.items()}
        publish = SplitPublish(self._parts, arrays, learner_step)
        narrowed = wire_dtype != "float32"

        def attempt() -> int:
            try:
                weights = publish.begin(self._find_shards(), narrowed=narrowed, timeout=timeout)
                header = make_header(weights)
                header.narrowed = narrowed
                header.shards.extend(publish.describe())
                requests = self._publish_requests(weights, header, expected_version)
                return self._publish(publish, publish.held_back(requests), timeout)
            except UnavailableError as error:
                raise NotYetError(str(error)) from error

        waiting_for = f"the parameter server at {self.address}"
        return poll(attempt, waiting_for=waiting_for, timeout=timeout, stop=stop)

    def watch(self, newer_than: int = 0) -> WeightStream:
        """Opens a stream of the newest weights, each newer than the one before."""
        return WeightStream(self._stub, self.address, self.run_id, newer_than, self._parts)

    def close(self) -> None:
        """Closes the channel; a watcher must have been stopped before."""
        self._parts.close()
        self._channel.close()

    def __enter__(self) -> Self:
        """Returns itself; the channel is open already."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Closes the channel."""
        self.close()

    def _read(self, request: pb.GetWeightsRequest, timeout: float) -> VersionReader | None:
        reader: VersionReader | None = None
        with translated_errors(f"GetWeights at {self.address}"):
            for response in self._stub.GetWeights(request, timeout=timeout):
                if response.HasField("header") and response.header.tensors:
                    reader = self._parts.reader(response.header, timeout=timeout, keep=True)
                if reader:
                    reader.add(response.parts)
        return reader

    def _publish(
        self, publish: SplitPublish, requests: Iterator[pb.PublishWeightsRequest], timeout: float
    ) -> int:
        try:
            with translated_errors(f"PublishWeights at {self.address}"):
                return self._stub.PublishWeights(requests, timeout=timeout).version
        except InvalidArgumentError:
            # If a part did not arrive, the rest was not sent whole; the part's error is the cause.
            publish.check()
            raise

    def _find_shards(self) -> list[str]:
        """Returns where the parts but the first one go, in order."""
        if self._shard_count == 1:
            return []
        request = run_pb2.GetRunRequest(run_id=self.run_id)
        with translated_errors(f"GetRun at {self.address}"):
            response = self._registry.GetRun(request, timeout=CALL_SECONDS)
        self._shard_count = shard_count(response.run)
        return find_shards(response)

    def _publish_requests(
        self, weights: Weights, header: pb.WeightsHeader, expected_version: int
    ) -> Iterator[pb.PublishWeightsRequest]:
        batches = split(weights.tensors.values())
        yield pb.PublishWeightsRequest(
            run_id=self.run_id,
            expected_version=expected_version,
            header=header,
            parts=next(batches),
        )
        for parts in batches:
            yield pb.PublishWeightsRequest(parts=parts)
