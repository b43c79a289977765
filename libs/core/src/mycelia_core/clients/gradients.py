"""The client of a parameter server that applies gradients: pushes them, gets weights back."""

import logging
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from mycelia.experience.v1 import tensor_pb2
from mycelia.params.v1 import params_pb2 as pb
from mycelia.params.v1 import params_pb2_grpc
from mycelia_core.clients.failures import translated_errors
from mycelia_core.clients.gradient_parts import GradientParts
from mycelia_core.clients.push_stream import PushStream
from mycelia_core.clients.shard_channels import ShardChannels
from mycelia_core.clients.waiting import Backoff, StoppedError
from mycelia_core.clients.weight_parts import VersionReader, WeightParts
from mycelia_core.parts import split, tensor_spec
from mycelia_core.rpc.channel import open_channel
from mycelia_core.rpc.errors import NotFoundError, UnavailableError
from mycelia_core.weights import STATISTICS, WIRE_DTYPES, Weights, WireDtype, narrow

logger = logging.getLogger(__name__)


class PushOutcome(Enum):
    """What became of a push."""

    APPLIED = pb.PUSH_OUTCOME_APPLIED
    """Its gradient is in the version that the answer names."""

    REFUSED_STALE = pb.PUSH_OUTCOME_REFUSED_STALE
    """Asynchronous: its version was further back than the run's bound. Not applied."""

    LATE = pb.PUSH_OUTCOME_LATE
    """Synchronous: its round had closed without it. Not applied."""

    DUPLICATE = pb.PUSH_OUTCOME_DUPLICATE
    """It had come before, and its answer was lost."""

    SKIPPED = pb.PUSH_OUTCOME_SKIPPED
    """Its update would have made a weight NaN or infinite, and was left out."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PushResult:
    """The answer to a push."""

    outcome: PushOutcome
    version: int
    """The version to go on from: the newest one."""

    staleness: int
    """Versions between the push's and its application."""

    weights: Weights | None
    """The weights of `version`, if they were asked for; None as well if one of several servers
    has gone on to newer ones meanwhile."""

    metrics: Mapping[str, float]
    """The metrics of all whose gradients are in the update, averaged by sample count."""


class GradientClient:
    """Pushes the gradients of one worker. One thread pushes; any other may close.

    client = GradientClient(address, run_id)
    result = client.push(
        gradients, version=weights.version, worker_id=instance_id, sequence=1, sample_count=80
    )
    weights = result.weights

    A stream stays open from one push to the next. When it breaks, the push is
    sent again with its sequence number, and the server applies it once.
    """

    def __init__(
        self,
        address: str,
        run_id: str,
        *,
        wire_dtype: WireDtype = "float32",
        stop: threading.Event | None = None,
    ) -> None:
        """Opens a channel; whether anybody answers shows with the first push.

        Args:
          address: where the parameter server is.
          run_id: the run.
          wire_dtype: what gradients are sent as; 16 bits halve the bytes.
          stop: ends a push that waits, within half a second of being set.
        """
        self.address = address
        self.run_id = run_id
        self._wire_dtype = WIRE_DTYPES[wire_dtype]
        self._stop = stop or threading.Event()
        self._channel = open_channel(address)
        self._stub = params_pb2_grpc.ParamServiceStub(self._channel)
        self._shards = ShardChannels()
        self._parts = WeightParts(run_id)
        self._stream: PushStream | None = None

    def push(
        self,
        gradients: Mapping[str, NDArray[Any]],
        *,
        version: int,
        worker_id: str,
        sequence: int,
        sample_count: int,
        statistics: Mapping[str, NDArray[Any]] | None = None,
        metrics: Mapping[str, float] | None = None,
        placement: Mapping[str, str] | None = None,
        want_weights: bool = True,
        timeout: float = 60.0,
    ) -> PushResult:
        """Pushes a gradient, and waits until it is applied or not.

        Args:
          gradients: one float array for each trained tensor of the weights, by
            its name; the mean over the samples.
          version: the version of the weights that it was computed at.
          worker_id: names the worker; its `instance_id`, if it is a member.
          sequence: counts the worker's pushes from 1; another number for each.
          sample_count: how many samples the gradient is the mean of.
          statistics: increments of running statistics, float64, by full name:
            `statistics/<name>/count`, `.../mean`, `.../m2`. Merged if, and only
            if, the gradient is applied.
          metrics: numbers to be averaged with those of the other workers.
          placement: `Weights.placement` of the weights of `version`: in a run with several
            parameter servers, which of them takes which tensor.
          want_weights: whether the answer is to bring the newest weights.
          timeout: seconds for all of it, a server that is away and the wait for
            the round to close included.

        Raises:
          InvalidArgumentError: a tensor is unknown, missing, misshapen or not
            finite, which the text names; or the version is newer than the
            server's, as after its restart. Go on from fresh weights.
          FailedPreconditionError: the server holds another run, no weights, or
            a run without gradients.
          UnavailableError: the server was away until the time was up; or, at once, one of
            several is away, or they are others by now. Go on from fresh weights.
          TimeoutError: it did not answer in time.
          StoppedError: `stop` was set.
        """
        placement = placement or {}
        arrays = self._wire_arrays(gradients, statistics or {})
        header = pb.PushHeader(
            run_id=self.run_id,
            worker_id=worker_id,
            sequence=sequence,
            version=version,
            sample_count=sample_count,
            metrics=metrics or {},
            want_weights=want_weights,
        )
        deadline = time.monotonic() + timeout
        if placement:
            return self._push_split(header, arrays, placement, deadline)
        header.tensors.extend(_specs(arrays))
        return self._push_until(header, arrays, deadline)

    def info(self, *, timeout: float = 5.0) -> pb.GetGradientInfoResponse:
        """Describes what has become of all workers' gradients so far."""
        request = pb.GetGradientInfoRequest(run_id=self.run_id)
        with translated_errors(f"GetGradientInfo at {self.address}"):
            return self._stub.GetGradientInfo(request, timeout=timeout)

    def close(self) -> None:
        """Closes stream and channel; a push that waits ends with `UnavailableError`."""
        if self._stream:
            self._stream.close()
        self._shards.close()
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
        """Closes stream and channel."""
        self.close()

    def _wire_arrays(
        self, gradients: Mapping[str, NDArray[Any]], statistics: Mapping[str, NDArray[Any]]
    ) -> dict[str, NDArray[Any]]:
        arrays = {name: narrow(array, self._wire_dtype) for name, array in gradients.items()}
        for name, array in statistics.items():
            if not name.startswith(STATISTICS):
                raise ValueError(f"statistics: got {name!r}, expected a name under {STATISTICS}")
            arrays[name] = np.asarray(array, np.float64)
        return arrays

    def _push_until(
        self, header: pb.PushHeader, arrays: Mapping[str, NDArray[Any]], deadline: float
    ) -> PushResult:
        backoff = Backoff()
        while True:
            try:
                return self._exchange(_requests(header, arrays), deadline)
            except UnavailableError:
                if time.monotonic() >= deadline:
                    raise
            self._stop.wait(min(backoff.next_seconds(), max(0.0, deadline - time.monotonic())))
            if self._stop.is_set():
                raise StoppedError("stopped while pushing a gradient")

    def _push_split(
        self,
        header: pb.PushHeader,
        arrays: Mapping[str, NDArray[Any]],
        placement: Mapping[str, str],
        deadline: float,
    ) -> PushResult:
        """Pushes once: servers that are others by now will not take the same parts later."""
        timeout = max(0.0, deadline - time.monotonic())
        parts = GradientParts(self._shards, header, arrays, placement, timeout)
        own = {name: array for name, array in arrays.items() if name not in placement}
        header.tensors.extend(_specs(own))
        header.shards.extend(parts.describe())
        return self._exchange(parts.held_back(_requests(header, own)), deadline)

    def _exchange(self, requests: Iterator[pb.PushGradientsRequest], deadline: float) -> PushResult:
        if self._stream is None or self._stream.is_worn:
            if self._stream:
                self._stream.close()
            self._stream = PushStream(self._stub, self.address, self._stop)
        try:
            return self._read(self._stream.exchange(requests, deadline), deadline)
        except BaseException:
            # What is left of a broken answer must not be taken for the next one's.
            self._stream.close()
            self._stream = None
            raise

    def _read(self, responses: Iterator[pb.PushGradientsResponse], deadline: float) -> PushResult:
        reader: VersionReader | None = None
        result = pb.PushResult()
        for response in responses:
            if response.HasField("result"):
                result = response.result
            if response.HasField("header"):
                timeout = max(0.0, deadline - time.monotonic())
                reader = self._parts.reader(response.header, timeout=timeout)
            if reader:
                reader.add(response.parts)
        return PushResult(
            outcome=PushOutcome(result.outcome),
            version=result.version,
            staleness=result.staleness,
            weights=_finish(reader) if reader else None,
            metrics=dict(result.metrics),
        )


def _finish(reader: VersionReader) -> Weights | None:
    try:
        return reader.finish()
    except (NotFoundError, UnavailableError, TimeoutError) as error:
        # The push itself was answered; a shard has gone on to newer weights, or is away.
        logger.debug("no weights with an answer: %s", error)
        return None


def _specs(arrays: Mapping[str, NDArray[Any]]) -> list[tensor_pb2.TensorSpec]:
    return [tensor_spec(name, array) for name, array in arrays.items()]


def _requests(
    header: pb.PushHeader, arrays: Mapping[str, NDArray[Any]]
) -> Iterator[pb.PushGradientsRequest]:
    """Yields a push as requests; the one that is yielded last is marked as such."""
    request = pb.PushGradientsRequest(header=header)
    for index, parts in enumerate(split(arrays.values())):
        if index:
            yield request
            request = pb.PushGradientsRequest()
        request.parts.extend(parts)
    request.last = True
    yield request
