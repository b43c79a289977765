"""A stream to the inference service: observations out, what the network says of them in."""

import queue
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mycelia.inference.v1 import inference_pb2 as pb
from mycelia.inference.v1 import inference_pb2_grpc
from mycelia.run.v1 import run_pb2
from mycelia_core.clients.failures import translated_errors
from mycelia_core.clients.run import RunClient
from mycelia_core.clients.waiting import StoppedError
from mycelia_core.codec import decode, encode
from mycelia_core.rpc.channel import open_channel
from mycelia_core.rpc.errors import StatusError, UnavailableError
from mycelia_core.specs import FIRST

Array = NDArray[Any]

Q_VALUES = "q_values"
"""The output of networks of action values, `[n, A]` float32."""

PIECE_BYTES = 2 * 1024 * 1024
"""Requests whose observations have more bytes are split by slot."""

STREAM_SECONDS = 24 * 3600.0
"""The deadline of a stream; each request has a much shorter one of its own."""

CALL_SECONDS = 2.0
"""The deadline of a look at the registry."""

_CHECK_SECONDS = 0.1
"""How often the watch over the deadline looks at the clock."""


@dataclass(frozen=True, slots=True)
class Inferred:
    """What the network says of n observations."""

    outputs: dict[str, Array]
    """By name, `[n, ...]`; nothing before the first weights. See inference.proto."""

    policy_version: int
    """The version of the weights; the oldest, if a request in pieces met several."""

    batch_row_count: int
    """How many observations were evaluated together."""

    wait_seconds: float
    """How long the request waited for its batch to be closed."""

    compute_seconds: float
    """How long the batch took."""

    sent_bytes: int
    """Of the request, without gRPC's framing."""

    received_bytes: int
    """Of the answer."""


class InferenceStream:
    """An open `Infer` call. One thread evaluates; any may close."""

    def __init__(self, address: str, run_id: str, slot_count: int, stop: threading.Event) -> None:
        """Opens it.

        Args:
          address: the service's, `host:port` or `unix:path`.
          run_id: the run.
          slot_count: how many environments there are.
          stop: ends an evaluation that waits.
        """
        self._name = f"Infer at {address}"
        self._run_id, self._slot_count = run_id, slot_count
        self._stop = stop
        self._request_id = 0
        self._deadline: float | None = None
        self._closed = threading.Event()
        self._requests: queue.SimpleQueue[pb.InferRequest | None] = queue.SimpleQueue()
        self._channel = open_channel(address)
        stub = inference_pb2_grpc.InferenceServiceStub(self._channel)
        self._call = stub.Infer(iter(self._requests.get, None), timeout=STREAM_SECONDS)
        # gRPC's iterators know one deadline, the call's; each request has one of its own.
        threading.Thread(target=self._watch, name="infer-deadline", daemon=True).start()

    def evaluate(
        self,
        observation: Mapping[str, Array],
        slots: Array,
        first: Array | None,
        *,
        timeout: float,
    ) -> Inferred:
        """Has observations evaluated, and waits for the answer.

        Args:
          observation: by column, `[n, ...]` each.
          slots: [n] which environments they are of, all different.
          first: [n] whether it is the first observation of an episode; None to look ahead
            only, so that the service's memory stays as it is.
          timeout: seconds until the stream counts as lost.

        Raises:
          TimeoutError: there was no answer in time. The stream has ended.
          UnavailableError: the service is starting, stopping or away. The stream has ended.
          StatusError: another reason of the service to refuse. The stream has ended.
          StoppedError: `stop` was set.
        """
        self._deadline = time.monotonic() + timeout
        try:
            with translated_errors(self._name):
                return self._exchange(observation, slots, first)
        except UnavailableError:
            self._say_why()
            raise
        finally:
            self._deadline = None

    def close(self) -> None:
        """Ends the call, at once."""
        self._closed.set()
        self._requests.put(None)
        self._call.cancel()
        self._channel.close()

    def _exchange(
        self, observation: Mapping[str, Array], slots: Array, first: Array | None
    ) -> Inferred:
        pieces = list(_pieces(observation, len(slots)))
        start, sent_bytes = self._request_id, 0
        for piece in pieces:
            columns = {name: column[piece] for name, column in observation.items()}
            sent_bytes += self._send(columns, slots[piece], None if first is None else first[piece])
        answers: dict[int, pb.InferResponse] = {}
        for response in self._call:
            answers[response.request_id] = response
            if len(answers) == len(pieces):
                return _join([answers[start + 1 + i] for i in range(len(pieces))], sent_bytes)
        raise UnavailableError(f"{self._name}: the server hung up")

    def _send(self, observation: Mapping[str, Array], slots: Array, first: Array | None) -> int:
        self._request_id += 1
        request = pb.InferRequest(
            request_id=self._request_id,
            slots=slots.tolist(),
            observation={name: encode(value, name=name) for name, value in observation.items()},
        )
        if first is None:
            request.look_ahead = True
        else:
            request.first.CopyFrom(encode(first, name=FIRST))
        if self._request_id == 1:
            request.run_id, request.slot_count = self._run_id, self._slot_count
        self._requests.put(request)
        return request.ByteSize()

    def _say_why(self) -> None:
        if self._stop.is_set():
            raise StoppedError("stopped while waiting for the inference service")
        deadline = self._deadline
        if not self._closed.is_set() and deadline and time.monotonic() >= deadline:
            raise TimeoutError(f"{self._name}: no answer before the deadline")

    def _watch(self) -> None:
        while not self._closed.wait(_CHECK_SECONDS):
            deadline = self._deadline
            if self._stop.is_set() or (deadline and time.monotonic() >= deadline):
                self._call.cancel()


def inference_locator(client: RunClient, run_id: str, actor_index: int) -> Callable[[], str | None]:
    """Returns what says where a run's inference service is; None while there is none.

    With several services, actors are spread over them by index. Asked again, it names the
    next one: one that has died is listed until its lease ends.
    """
    turn = actor_index

    def locate() -> str | None:
        nonlocal turn
        try:
            members = client.get_run(run_id, timeout=CALL_SECONDS).members
        except (StatusError, TimeoutError):
            return None
        serving = sorted(
            (member.index, member.address)
            for member in members
            if member.role == run_pb2.ROLE_INFERENCE and member.alive and member.address
        )
        if not serving:
            return None
        turn += 1
        return serving[(turn - 1) % len(serving)][1]

    return locate


def _pieces(observation: Mapping[str, Array], count: int) -> Iterator[slice]:
    row_bytes = max(1, sum(column.nbytes for column in observation.values()) // count)
    most = max(1, PIECE_BYTES // row_bytes)
    for start in range(0, count, most):
        yield slice(start, min(count, start + most))


def _join(responses: Sequence[pb.InferResponse], sent_bytes: int) -> Inferred:
    versions = [response.policy_version for response in responses]
    names = responses[0].outputs if min(versions) else ()
    return Inferred(
        outputs={
            name: np.concatenate([decode(r.outputs[name], name=name) for r in responses])
            for name in names
        },
        policy_version=min(versions),
        batch_row_count=max(response.batch_row_count for response in responses),
        wait_seconds=max(r.wait_duration.ToNanoseconds() for r in responses) / 1e9,
        compute_seconds=max(r.compute_duration.ToNanoseconds() for r in responses) / 1e9,
        sent_bytes=sent_bytes,
        received_bytes=sum(response.ByteSize() for response in responses),
    )
