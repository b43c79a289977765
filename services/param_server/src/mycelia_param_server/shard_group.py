"""The further servers of a run's weights, as the first one directs them."""

import asyncio
import logging
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

import grpc

from mycelia.params.v1 import params_pb2, shards_pb2_grpc
from mycelia.params.v1 import shards_pb2 as pb
from mycelia_core.clients.failures import translated_errors
from mycelia_core.rpc.channel import open_aio_channel
from mycelia_core.rpc.errors import FailedPreconditionError, StatusError, UnavailableError
from mycelia_param_server.gradient_intake import PartIds, RefusedPushError

R = TypeVar("R")

if TYPE_CHECKING:
    # Only the types know the two kinds of stub apart.
    from mycelia.params.v1.shards_pb2_grpc import ShardServiceAsyncStub as Stub

CALL_SECONDS = 30.0
"""The deadline of a step that all shards take together."""

LOOK_SECONDS = 2.0
"""The deadline of asking a shard whether it is still what it was."""

logger = logging.getLogger(__name__)


class ShardGroup:
    """Lets all shards of a run's weights take the same steps, or none. One event loop owns it."""

    def __init__(self, run_id: str) -> None:
        """Starts without shards.

        Args:
          run_id: the run.
        """
        self.run_id = run_id
        self._epoch = ""
        self._stubs: dict[str, Stub] = {}
        self._channels: dict[str, grpc.aio.Channel] = {}
        self.is_whole = True
        """Whether all shards are, as far as is known, where this server believes them to be."""

        self.infos: list[pb.GetShardInfoResponse] = []
        """What they said when they were last looked at."""

    def describe(self, version: int) -> list[params_pb2.ShardPart]:
        """Returns what a version's header has to say of its other parts."""
        return [
            params_pb2.ShardPart(address=address, part_id=f"{self._epoch}-{version}")
            for address in self._stubs
        ]

    def check_parts(self, part_ids: PartIds) -> None:
        """Refuses a gradient that is not on these shards.

        Raises:
          RefusedPushError: it is on none.
          UnavailableError: it lies on others, or a shard is away.
        """
        self._check_whole()
        if self._stubs and not part_ids:
            raise RefusedPushError(
                f"shards: got none, parts of the weights are on {sorted(self._stubs)}"
            )
        if part_ids.keys() != self._stubs.keys():
            raise UnavailableError(
                f"shards: got parts on {sorted(part_ids)}, the weights are on "
                f"{sorted(self._stubs) or 'none'}; go on from the newest"
            )

    async def adopt(
        self, parts: Mapping[str, pb.AdoptPartRequest], *, version: int, timeout: float
    ) -> None:
        """Makes parts that are on their shards already what gradients are applied to.

        Args:
          parts: by address: `part_id`, and how its optimizer goes on.
          version: of the weights that they are parts of.
          timeout: seconds for all of them.

        Raises:
          UnavailableError: a shard is away, or its part.
        """
        await self.close()
        self._epoch = uuid.uuid4().hex
        for address in parts:
            self._channels[address] = open_aio_channel(address)
            self._stubs[address] = shards_pb2_grpc.ShardServiceStub(self._channels[address])
        for request in parts.values():
            request.run_id, request.epoch, request.version = self.run_id, self._epoch, version
        self.is_whole = True
        await self._all(
            lambda stub, address: stub.AdoptPart(parts[address], timeout=timeout), "AdoptPart"
        )

    async def prepare(self, version: int, gradients: Sequence[PartIds]) -> list[float]:
        """Lets every shard average its parts of gradients; returns the norms of the means.

        Raises:
          UnavailableError: a shard is away, or a part of a gradient.
        """
        responses = await self._all(
            lambda stub, address: stub.PrepareUpdate(
                pb.PrepareUpdateRequest(
                    run_id=self.run_id,
                    epoch=self._epoch,
                    version=version,
                    part_ids=[part_ids[address] for part_ids in gradients],
                ),
                timeout=CALL_SECONDS,
            ),
            "PrepareUpdate",
        )
        return [response.gradient_norm for response in responses]

    async def commit(self, version: int, gradient_norm: float, scale: float) -> None:
        """Lets every shard take the step that it has prepared.

        Raises:
          UnavailableError: a shard is away. Others may have taken the step.
        """
        request = pb.CommitUpdateRequest(
            run_id=self.run_id,
            epoch=self._epoch,
            version=version,
            gradient_norm=gradient_norm,
            scale=scale,
        )
        try:
            await self._all(
                lambda stub, _: stub.CommitUpdate(request, timeout=CALL_SECONDS), "CommitUpdate"
            )
        except UnavailableError:
            self.is_whole = False
            raise

    async def keep_state(self) -> dict[str, pb.KeepStateResponse]:
        """Lets every shard copy its weights and optimizer; returns the copies' names by address.

        Raises:
          UnavailableError: a shard is away.
        """
        request = pb.KeepStateRequest(run_id=self.run_id, epoch=self._epoch)
        responses = await self._all(
            lambda stub, _: stub.KeepState(request, timeout=CALL_SECONDS), "KeepState"
        )
        return dict(zip(self._stubs, responses, strict=True))

    async def look(self) -> None:
        """Asks every shard how it is doing.

        Raises:
          UnavailableError: a shard is away, or has begun anew.
        """
        request = pb.GetShardInfoRequest(run_id=self.run_id, epoch=self._epoch)
        self.infos = await self._all(
            lambda stub, _: stub.GetShardInfo(request, timeout=LOOK_SECONDS), "GetShardInfo"
        )

    async def close(self) -> None:
        """Closes all channels."""
        channels, self._channels, self._stubs = self._channels, {}, {}
        for channel in channels.values():
            await channel.close()

    def _check_whole(self) -> None:
        if not self.is_whole:
            raise UnavailableError("a shard of the weights is away")

    async def _all(
        self,
        call: "Callable[[Stub, str], Awaitable[R]]",
        name: str,
    ) -> list[R]:
        self._check_whole()
        calls = (
            self._one(call(stub, address), name, address) for address, stub in self._stubs.items()
        )
        results = await asyncio.gather(*calls, return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                raise self._judge(result) from result
        return [result for result in results if not isinstance(result, BaseException)]

    async def _one(self, call: Awaitable[R], name: str, address: str) -> R:
        with translated_errors(f"{name} at the shard {address}"):
            return await call

    def _judge(self, error: BaseException) -> BaseException:
        """Notes whether a shard is lost; returns the error as it is to be told."""
        if isinstance(error, FailedPreconditionError | UnavailableError | TimeoutError):
            self.is_whole = False
            logger.warning("a shard of the weights is lost: %s", error)
        if isinstance(error, StatusError | TimeoutError):
            return UnavailableError(str(error))
        return error
