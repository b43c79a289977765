"""Serves the weight store; the contract of each method is written in params.proto."""

from collections.abc import AsyncIterator
from typing import Any

import grpc

from mycelia.params.v1 import params_pb2 as pb
from mycelia_core.rpc.errors import InvalidArgumentError, UnavailableError
from mycelia_param_server.registry import RunRegistry
from mycelia_param_server.weight_intake import WeightIntake
from mycelia_param_server.weight_store import WeightStore

Context = grpc.aio.ServicerContext[Any, Any]

SERVICE_NAME = pb.DESCRIPTOR.services_by_name["ParamService"].full_name


class ParamService:
    """Serves one weight store. One event loop owns both, so neither needs a lock.

    Responses leave as the bytes that the store keeps, so this is added to a
    server by `add_param_service` and not by the generated function.
    """

    def __init__(self, registry: RunRegistry, store: WeightStore, max_weight_bytes: int) -> None:
        """Takes the store, and the registry that knows which run it belongs to.

        Args:
          registry: refuses requests for another run.
          store: the weights.
          max_weight_bytes: the most that one version may have.
        """
        self._registry = registry
        self._store = store
        self._max_weight_bytes = max_weight_bytes
        self._draining = False

    async def GetWeights(
        self, request: pb.GetWeightsRequest, context: Context
    ) -> AsyncIterator[bytes]:
        """Yields the newest weights if they are newer, or else a header alone."""
        self._registry.find(request.run_id)
        newest = self._store.newest
        if newest.version > request.newer_than_version:
            for response in newest.responses:
                yield response
            return
        header = pb.WeightsHeader()
        header.CopyFrom(newest.header)
        header.ClearField("tensors")
        yield pb.GetWeightsResponse(header=header, last=True).SerializeToString()

    async def WatchWeights(
        self, request: pb.WatchWeightsRequest, context: Context
    ) -> AsyncIterator[bytes]:
        """Yields the newest weights, again and again.

        Between two versions it looks at what is newest by then. While a slow
        reader takes one, any number of others come and go.
        """
        version = request.newer_than_version
        while True:
            self._check_open(request.run_id)
            newest = self._store.newest
            if newest.version > version:
                for response in newest.responses:
                    yield response
                version = newest.version
            else:
                await self._store.wait_for_change(newest)

    async def PublishWeights(
        self, requests: AsyncIterator[pb.PublishWeightsRequest], context: Context
    ) -> pb.PublishWeightsResponse:
        """Takes in new weights, and makes them the newest when all is there and right."""
        first = await anext(requests, None)
        if first is None or not first.HasField("header"):
            raise InvalidArgumentError("header: required in the first request")
        self._check_open(first.run_id)
        repeated = self._store.find_repeat(first.expected_version, first.header)
        if repeated is not None:
            return pb.PublishWeightsResponse(version=repeated)
        intake = WeightIntake(first.header, self._max_weight_bytes)
        intake.add(first.parts)
        async for request in requests:
            intake.add(request.parts)
        # The run may have been replaced while the parts came in.
        self._check_open(first.run_id)
        version = self._store.publish(first.expected_version, intake)
        return pb.PublishWeightsResponse(version=version)

    def drain(self) -> None:
        """Ends open watches with `UNAVAILABLE`, so that the server can stop."""
        self._draining = True
        self._store.wake()

    def _check_open(self, run_id: str) -> None:
        if self._draining:
            raise UnavailableError("the parameter server is stopping")
        self._registry.find(run_id)


def add_param_service(service: ParamService, server: grpc.aio.Server) -> None:
    """Registers the service; its responses are bytes already and pass through."""
    handlers: dict[str, grpc.RpcMethodHandler[Any, Any]] = {
        "GetWeights": grpc.unary_stream_rpc_method_handler(
            service.GetWeights, pb.GetWeightsRequest.FromString, None
        ),
        "WatchWeights": grpc.unary_stream_rpc_method_handler(
            service.WatchWeights, pb.WatchWeightsRequest.FromString, None
        ),
        "PublishWeights": grpc.stream_unary_rpc_method_handler(
            service.PublishWeights,
            pb.PublishWeightsRequest.FromString,
            pb.PublishWeightsResponse.SerializeToString,
        ),
    }
    handler = grpc.method_handlers_generic_handler(SERVICE_NAME, handlers)
    server.add_generic_rpc_handlers((handler,))
