"""Serves parts of versions; the contract of each method is written in shards.proto."""

from collections.abc import AsyncIterator
from typing import Any

import grpc

from mycelia.params.v1 import shards_pb2 as pb
from mycelia_core.rpc.errors import (
    FailedPreconditionError,
    InvalidArgumentError,
    UnavailableError,
)
from mycelia_param_server.part_store import PartStore
from mycelia_param_server.weight_intake import WeightIntake

Context = grpc.aio.ServicerContext[Any, Any]

SERVICE_NAME = pb.DESCRIPTOR.services_by_name["ShardService"].full_name

MAX_PART_ID = 64


class ShardService:
    """Keeps one shard's parts. One event loop owns it, so it needs no lock."""

    def __init__(self, max_weight_bytes: int) -> None:
        """Serves nobody until it knows its run.

        Args:
          max_weight_bytes: the most that one part may have.
        """
        self.run_id = ""
        """The run that it has joined; empty before."""

        self._store = PartStore()
        self._max_weight_bytes = max_weight_bytes

    async def PutPart(
        self, requests: AsyncIterator[pb.PutPartRequest], context: Context
    ) -> pb.PutPartResponse:
        """Takes in a part, and keeps it when all is there and right."""
        first = await anext(requests, None)
        if first is None or not first.HasField("header"):
            raise InvalidArgumentError("header: required in the first request")
        self._check_run(first.run_id)
        if not 1 <= len(first.part_id) <= MAX_PART_ID:
            raise InvalidArgumentError(
                f"part_id: got {len(first.part_id)} characters, expected 1 to {MAX_PART_ID}"
            )
        intake = WeightIntake(first.header, self._max_weight_bytes)
        intake.add(first.parts)
        async for request in requests:
            intake.add(request.parts)
        if first.part_id not in self._store:
            self._store.put(first.part_id, intake.finish(version=0).encoded)
        return pb.PutPartResponse()

    async def GetPart(self, request: pb.GetPartRequest, context: Context) -> AsyncIterator[bytes]:
        """Yields the messages that carry a part."""
        self._check_run(request.run_id)
        for response in self._store.find(request.part_id, keep=request.keep):
            yield response

    def _check_run(self, run_id: str) -> None:
        if not self.run_id:
            raise UnavailableError("this shard has not joined its run yet")
        if run_id != self.run_id:
            raise FailedPreconditionError(
                f"run_id: got {run_id!r}, this shard is of run {self.run_id}"
            )


def add_shard_service(service: ShardService, server: grpc.aio.Server) -> None:
    """Registers the service; the responses of `GetPart` are bytes already and pass through."""
    handlers: dict[str, grpc.RpcMethodHandler[Any, Any]] = {
        "PutPart": grpc.stream_unary_rpc_method_handler(
            service.PutPart,
            pb.PutPartRequest.FromString,
            pb.PutPartResponse.SerializeToString,
        ),
        "GetPart": grpc.unary_stream_rpc_method_handler(
            service.GetPart, pb.GetPartRequest.FromString, None
        ),
    }
    handler = grpc.method_handlers_generic_handler(SERVICE_NAME, handlers)
    server.add_generic_rpc_handlers((handler,))
