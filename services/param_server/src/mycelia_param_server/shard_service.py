"""Serves parts of versions and of gradients; the contract of each method is in shards.proto."""

from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc

from mycelia.params.v1 import shards_pb2 as pb
from mycelia_core.config import RunConfig
from mycelia_core.rpc.errors import (
    FailedPreconditionError,
    InvalidArgumentError,
    UnavailableError,
)
from mycelia_param_server.part_store import PartStore
from mycelia_param_server.shard_updates import ShardUpdates
from mycelia_param_server.trainer import TOPOLOGIES
from mycelia_param_server.weight_intake import WeightIntake

Context = grpc.aio.ServicerContext[Any, Any]

SERVICE_NAME = pb.DESCRIPTOR.services_by_name["ShardService"].full_name

MAX_PART_ID = 64

MAX_EPOCH = 40
"""What is made of it names parts."""


class ShardService:
    """Keeps one shard's parts. One event loop owns it."""

    def __init__(self, max_weight_bytes: int) -> None:
        """Serves nobody until it knows its run.

        Args:
          max_weight_bytes: the most that one part may have.
        """
        self._run_id = ""
        self._store = PartStore()
        self.updates: ShardUpdates | None = None
        """Applies gradients, if the run's topology has any."""
        self._max_weight_bytes = max_weight_bytes

    def begin(self, run_id: str, config: RunConfig) -> None:
        """Serves a run from now on."""
        self._run_id = run_id
        if config.topology in TOPOLOGIES:
            self.updates = ShardUpdates(config, self._store)

    @property
    def store(self) -> PartStore:
        """The parts that it keeps."""
        return self._store

    def stop(self) -> None:
        """Ends what runs in a thread."""
        if self.updates:
            self.updates.stop()

    async def PutPart(
        self, requests: AsyncIterator[pb.PutPartRequest], context: Context
    ) -> pb.PutPartResponse:
        """Takes in a part, and keeps it when all is there and right."""
        first = await anext(requests, None)
        if first is None or not first.HasField("header"):
            raise InvalidArgumentError("header: required in the first request")
        self._check_run(first.run_id)
        _check_length("part_id", first.part_id, MAX_PART_ID)
        intake = WeightIntake(first.header, self._max_weight_bytes)
        intake.add(first.parts)
        async for request in requests:
            intake.add(request.parts)
        if first.part_id not in self._store:
            self._store.put(first.part_id, intake.finish(version=0))
        return pb.PutPartResponse()

    async def GetPart(self, request: pb.GetPartRequest, context: Context) -> AsyncIterator[bytes]:
        """Yields the messages that carry a part."""
        self._check_run(request.run_id)
        part = self._store.find(request.part_id, keep=request.keep)
        for response in await part.responses():
            yield response

    async def PutGradient(
        self, requests: AsyncIterator[pb.PutGradientRequest], context: Context
    ) -> pb.PutGradientResponse:
        """Takes in a part of a gradient, and keeps it until it counts."""
        first = await anext(requests, None)
        if first is None or not first.HasField("header"):
            raise InvalidArgumentError("header: required in the first request")
        updates = self._find_updates(first.header.run_id)
        _check_length("part_id", first.part_id, MAX_PART_ID)
        try:
            intake = updates.begin_gradient(first.header)
            intake.add(first.parts)
            async for request in requests:
                intake.add(request.parts)
            await updates.put_gradient(first.part_id, intake)
        except InvalidArgumentError as error:
            updates.note_refusal(error)
            raise
        return pb.PutGradientResponse()

    async def AdoptPart(
        self, request: pb.AdoptPartRequest, context: Context
    ) -> pb.AdoptPartResponse:
        """Makes a part what gradients are applied to."""
        _check_length("epoch", request.epoch, MAX_EPOCH)
        await self._find_updates(request.run_id).adopt(request)
        return pb.AdoptPartResponse()

    async def PrepareUpdate(
        self, request: pb.PrepareUpdateRequest, context: Context
    ) -> pb.PrepareUpdateResponse:
        """Averages gradients for the next version."""
        if not request.part_ids:
            raise InvalidArgumentError("part_ids: got none, expected at least one")
        norm = await self._find_updates(request.run_id).prepare(request)
        return pb.PrepareUpdateResponse(gradient_norm=norm)

    async def CommitUpdate(
        self, request: pb.CommitUpdateRequest, context: Context
    ) -> pb.CommitUpdateResponse:
        """Takes the step that was prepared."""
        await self._find_updates(request.run_id).commit(request)
        return pb.CommitUpdateResponse()

    async def KeepState(
        self, request: pb.KeepStateRequest, context: Context
    ) -> pb.KeepStateResponse:
        """Copies weights and optimizer into parts."""
        part_id, vectors_id = await self._find_updates(request.run_id).keep_state(request.epoch)
        return pb.KeepStateResponse(part_id=part_id, optimizer_part_id=vectors_id)

    async def GetShardInfo(
        self, request: pb.GetShardInfoRequest, context: Context
    ) -> pb.GetShardInfoResponse:
        """Says how the shard is doing."""
        return self._find_updates(request.run_id).describe(request.epoch)

    def _find_updates(self, run_id: str) -> ShardUpdates:
        self._check_run(run_id)
        if self.updates is None:
            raise FailedPreconditionError(
                "the run's topology has no gradients for this shard to apply"
            )
        return self.updates

    def _check_run(self, run_id: str) -> None:
        if not self._run_id:
            raise UnavailableError("this shard has not joined its run yet")
        if run_id != self._run_id:
            raise FailedPreconditionError(
                f"run_id: got {run_id!r}, this shard is of run {self._run_id}"
            )


def _check_length(field: str, text: str, most: int) -> None:
    if not 1 <= len(text) <= most:
        raise InvalidArgumentError(f"{field}: got {len(text)} characters, expected 1 to {most}")


def add_shard_service(service: ShardService, server: grpc.aio.Server) -> None:
    """Registers the service; the responses of `GetPart` are bytes already and pass through."""
    handlers: dict[str, grpc.RpcMethodHandler[Any, Any]] = {
        "GetPart": grpc.unary_stream_rpc_method_handler(
            service.GetPart, pb.GetPartRequest.FromString, None
        )
    }
    for name in ("PutPart", "PutGradient"):
        handlers[name] = _handler(service, name, grpc.stream_unary_rpc_method_handler)
    for name in ("AdoptPart", "PrepareUpdate", "CommitUpdate", "KeepState", "GetShardInfo"):
        handlers[name] = _handler(service, name, grpc.unary_unary_rpc_method_handler)
    handler = grpc.method_handlers_generic_handler(SERVICE_NAME, handlers)
    server.add_generic_rpc_handlers((handler,))


def _handler(
    service: ShardService, name: str, make: "Callable[..., grpc.RpcMethodHandler[Any, Any]]"
) -> "grpc.RpcMethodHandler[Any, Any]":
    request, response = getattr(pb, f"{name}Request"), getattr(pb, f"{name}Response")
    return make(getattr(service, name), request.FromString, response.SerializeToString)
