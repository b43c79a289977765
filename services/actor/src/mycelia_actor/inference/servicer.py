"""The inference service: requests in, answers out; the batcher does the work."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any

import grpc

from mycelia.inference.v1 import inference_pb2 as pb
from mycelia.inference.v1 import inference_pb2_grpc
from mycelia_actor.inference.batch import Answer
from mycelia_actor.inference.batcher import Batcher
from mycelia_actor.inference.requests import make_response, parse_request
from mycelia_actor.inference.slots import Lease, SlotTable
from mycelia_core.rpc.errors import FailedPreconditionError, UnavailableError
from mycelia_core.specs import ColumnSpec

SERVICE_NAME = pb.DESCRIPTOR.services_by_name["InferenceService"].full_name

MAX_IN_FLIGHT = 16
"""Requests of one stream that may be unanswered; the next ones are not read meanwhile."""

Context = grpc.aio.ServicerContext[Any, Any]

_Outbox = asyncio.Queue["tuple[int, Answer | Exception] | None"]
"""A stream's answers by request; None when there are no further requests."""


@dataclass(frozen=True, slots=True)
class Served:
    """What is served once the run is known."""

    run_id: str
    specs: Sequence[ColumnSpec]
    batcher: Batcher
    slots: SlotTable


class InferenceServicer(inference_pb2_grpc.InferenceServiceServicer):
    """Serves the network of one run. One event loop owns it.

    The contract is written on the RPC in inference.proto.
    """

    def __init__(self) -> None:
        """Answers `UNAVAILABLE` until `open` is called."""
        self._served: Served | None = None
        self._unavailable = "the server is starting: the run's signature is not known yet"

    def open(self, served: Served) -> None:
        """Begins to serve."""
        self._served = served

    def close(self) -> None:
        """Refuses further calls."""
        self._served = None
        self._unavailable = "the server is stopping"

    async def Infer(
        self, request_iterator: AsyncIterator[pb.InferRequest], context: Context
    ) -> AsyncIterator[pb.InferResponse]:
        """Evaluates what one actor's environments show."""
        served = self._served
        if served is None:
            raise UnavailableError(self._unavailable)
        first = await anext(aiter(request_iterator), None)
        if first is None:
            return
        if first.run_id != served.run_id:
            raise FailedPreconditionError(
                f"run_id: got {first.run_id!r}, expected this server's run {served.run_id!r}"
            )
        lease = served.slots.take(first.slot_count)
        served.batcher.set_stream_count(served.slots.lease_count)
        stream = _Stream(served, lease)
        reader = asyncio.create_task(stream.read(first, request_iterator))
        try:
            async for response in stream.responses():
                yield response
        finally:
            # However the stream ended: closed, cancelled, refused or dead.
            reader.cancel()
            served.slots.give_back(lease)
            served.batcher.set_stream_count(served.slots.lease_count)


class _Stream:
    """One actor's requests on their way through the batcher."""

    def __init__(self, served: Served, lease: Lease) -> None:
        self._served = served
        self._lease = lease
        self._loop = asyncio.get_running_loop()
        self._outbox: _Outbox = asyncio.Queue()
        self._room = asyncio.Semaphore(MAX_IN_FLIGHT)
        self._unanswered = 0

    async def read(self, first: pb.InferRequest, others: AsyncIterator[pb.InferRequest]) -> None:
        """Submits requests as they come."""
        try:
            await self._submit(first)
            async for request in others:
                await self._submit(request)
        except Exception as error:  # noqa: BLE001 - the writing half raises it
            self._outbox.put_nowait((0, error))
        self._outbox.put_nowait(None)

    async def responses(self) -> AsyncIterator[pb.InferResponse]:
        """Yields answers as they come, until every request has its own.

        Raises:
          StatusError: a request was refused, or the batcher ended.
        """
        reading = True
        while reading or self._unanswered:
            entry = await self._outbox.get()
            if entry is None:
                reading = False
                continue
            request_id, answer = entry
            if isinstance(answer, Exception):
                raise answer
            self._unanswered -= 1
            self._room.release()
            yield make_response(request_id, answer)

    async def _submit(self, request: pb.InferRequest) -> None:
        await self._room.acquire()
        request_id = request.request_id

        def done(answer: Answer | Exception) -> None:
            self._loop.call_soon_threadsafe(self._outbox.put_nowait, (request_id, answer))

        job = parse_request(request, self._served.specs, self._lease, done)
        self._unanswered += 1
        self._served.batcher.submit(job)
