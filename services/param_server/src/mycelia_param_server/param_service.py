"""Serves weights and gradients; the contract of each method is written in params.proto."""

from collections.abc import AsyncIterator
from typing import Any

import grpc

from mycelia.params.v1 import params_pb2 as pb
from mycelia_core.rpc.errors import InvalidArgumentError, UnavailableError
from mycelia_param_server.gradient_service import answer_to, describe, require, take_in
from mycelia_param_server.registry import RunRegistry
from mycelia_param_server.snapshot import Snapshot
from mycelia_param_server.trainer import Trainer
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
        self.trainer: Trainer | None = None
        """Applies gradients, if the run's topology has any for this server."""

    async def GetWeights(
        self, request: pb.GetWeightsRequest, context: Context
    ) -> AsyncIterator[bytes]:
        """Yields the newest weights if they are newer, or else a header alone."""
        self._registry.find(request.run_id)
        if request.version:
            for response in self._store.handed_out.find(request.version):
                yield response
            return
        newest = self._store.newest
        if _is_news(newest, request.newer_than_version):
            responses = await newest.responses()
            self._store.handed_out.keep(newest.version, responses)
            for response in responses:
                yield response
            return
        yield pb.GetWeightsResponse(header=newest.summary(), last=True).SerializeToString()

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
            if _is_news(newest, version):
                for response in await newest.responses():
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
        if self.trainer:
            version = await self.trainer.publish(first.expected_version, intake)
        else:
            version = self._store.publish(first.expected_version, intake)
        return pb.PublishWeightsResponse(version=version)

    async def PushGradients(
        self, requests: AsyncIterator[pb.PushGradientsRequest], context: Context
    ) -> AsyncIterator[bytes]:
        """Takes in pushes one after the other, and answers each."""
        async for first in requests:
            if not first.HasField("header"):
                raise InvalidArgumentError("header: required in the first request of each push")
            self._check_open(first.header.run_id)
            trainer = require(self.trainer)
            push = await take_in(trainer, first, requests)
            answer = await trainer.push(push)
            responses = answer_to(answer, self._store, with_weights=first.header.want_weights)
            async for response in responses:
                yield response

    async def GetGradientInfo(
        self, request: pb.GetGradientInfoRequest, context: Context
    ) -> pb.GetGradientInfoResponse:
        """Describes what has become of the gradients."""
        self._registry.find(request.run_id)
        return describe(require(self.trainer), self._store)

    def drain(self) -> None:
        """Ends open watches with `UNAVAILABLE`, so that the server can stop."""
        self._draining = True
        self._store.wake()

    def _check_open(self, run_id: str) -> None:
        if self._draining:
            raise UnavailableError("the parameter server is stopping")
        self._registry.find(run_id)


def _is_news(newest: Snapshot, version: int) -> bool:
    # A reader may be ahead of a server that was restored from a checkpoint; what it
    # has is lost here, and it goes on from what there is.
    return newest.version not in (0, version)


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
        "PushGradients": grpc.stream_stream_rpc_method_handler(
            service.PushGradients, pb.PushGradientsRequest.FromString, None
        ),
        "GetGradientInfo": grpc.unary_unary_rpc_method_handler(
            service.GetGradientInfo,
            pb.GetGradientInfoRequest.FromString,
            pb.GetGradientInfoResponse.SerializeToString,
        ),
    }
    handler = grpc.method_handlers_generic_handler(SERVICE_NAME, handlers)
    server.add_generic_rpc_handlers((handler,))
