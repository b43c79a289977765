"""The weights that gradients are applied to, on this server and on its shards."""

import asyncio
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mycelia.params.v1 import shards_pb2
from mycelia_core.config import RunConfig
from mycelia_core.rpc.errors import FailedPreconditionError, InvalidArgumentError
from mycelia_core.weights import Weights
from mycelia_param_server import joined_state
from mycelia_param_server.checkpoint import Checkpoint
from mycelia_param_server.gradient_intake import PartIds
from mycelia_param_server.joined_state import Group
from mycelia_param_server.master_weights import MasterWeights, Statistics, build_master
from mycelia_param_server.shard_group import CALL_SECONDS, ShardGroup
from mycelia_param_server.snapshot import EncodedSnapshot, FlatSnapshot, decode
from mycelia_param_server.update_thread import UpdateThread


@dataclass(frozen=True, slots=True)
class Copies:
    """A version's weights and optimizer, as a checkpoint is made of them."""

    own: Group
    """What this server has."""

    kept: Mapping[str, shards_pb2.KeepStateResponse]
    """What the copies on the shards are called, by address."""

    state: dict[str, Any]


class TrainedWeights:
    """One run's weights and optimizer. One event loop owns it; the arithmetic has a thread.

    Attributes:
      master: this server's part, once there are any.
      shards: where the other parts are; None in a run without.
      thread: where work on the weights runs.
    """

    def __init__(self, config: RunConfig, shards: ShardGroup | None) -> None:
        """Waits for weights.

        Args:
          config: the run's.
          shards: the run's further parameter servers, if it has any.
        """
        self._config = config
        self.shards = shards
        self.master: MasterWeights | None = None
        self.thread = UpdateThread()

    async def begin(self, published: EncodedSnapshot) -> FlatSnapshot:
        """Starts, or starts anew, from published weights, whose other parts are on their shards.

        Raises:
          InvalidArgumentError: the weights cannot be trained, or lie on shards in a run that has
            none.
          FailedPreconditionError: torch is not installed.
          UnavailableError: a shard is away.
        """
        header = published.header
        if header.shards and self.shards is None:
            raise InvalidArgumentError("header.shards: the run has one parameter server alone")
        weights = decode(published)
        parts = {
            part.address: shards_pb2.AdoptPartRequest(
                part_id=part.part_id, first_update=weights.learner_step
            )
            for part in header.shards
        }
        group = Group(weights.tensors, {})
        return await self._start(weights.version, weights.learner_step, 0, group, parts)

    async def resume(
        self, version: int, state: Mapping[str, Any], own: Group, parts: Mapping[str, Group]
    ) -> FlatSnapshot:
        """Goes on from a checkpoint, whose other parts are put on their shards here.

        Args:
          version: what the weights are to be called.
          state: the checkpoint's.
          own: this server's part.
          parts: the other parts by address.

        Raises:
          ValueError: the optimizer is another one.
          UnavailableError: a shard is away.
        """
        step_count = state["step_count"]
        requests = {}
        if self.shards:
            requests = await joined_state.put(self.shards.run_id, parts)
        for request in requests.values():
            request.first_update, request.step_count = state["first_update"], step_count
        return await self._start(version, state["first_update"], step_count, own, requests)

    async def update(
        self,
        version: int,
        gradient: NDArray[np.float32],
        elsewhere: Sequence[PartIds],
        statistics: Iterable[Statistics],
        scale: float,
    ) -> FlatSnapshot | None:
        """Makes the next version, on all servers.

        Args:
          version: what it is to be called.
          gradient: [P] this server's part of the mean; changed.
          elsewhere: the other parts of all gradients in the mean.
          statistics: increments to be merged.
          scale: multiplies the step size.

        Returns:
          None if the gradient was left out because its norm is not finite.

        Raises:
          UnavailableError: a shard is away. If it was lost half-way, all are to go on from a
            checkpoint.
        """
        master = self.require()
        norm = await self.thread.run(master.norm, gradient)
        if self.shards:
            norm = math.hypot(norm, *await self.shards.prepare(version, elsewhere))
        if not math.isfinite(norm):
            return None
        step = self.thread.run(master.update, version, gradient, norm, statistics, scale)
        if self.shards is None:
            return await step
        snapshot, _ = await asyncio.gather(step, self.shards.commit(version, norm, scale))
        snapshot.shards = self.shards.describe(version)
        return snapshot

    async def copy(self, version: int) -> Copies:
        """Copies all that a checkpoint of the newest version needs; parts stay on their shards.

        Raises:
          FailedPreconditionError: there are no weights.
          UnavailableError: a shard is away.
        """
        master = self.require()
        kept = await self.shards.keep_state() if self.shards else {}
        vectors = await self.thread.run(master.applier.state)
        snapshot = await self.thread.run(master.snapshot, version)
        return Copies(Group(snapshot.tensors(), vectors), kept, master.describe(snapshot))

    def require(self) -> MasterWeights:
        """Returns this server's part; `FailedPreconditionError` if there are no weights."""
        if self.master is None:
            raise FailedPreconditionError("no weights have been published to apply gradients to")
        return self.master

    def start_here(self, saved: Checkpoint) -> FlatSnapshot:
        """Goes on from a checkpoint that this server has alone. Imports torch.

        Raises:
          ValueError, KeyError: the checkpoint is of another optimizer, or lacks something.
        """
        state, [own] = saved.state, joined_state.split(saved, 1)
        self.master = self._make_master(
            state["version"], state["first_update"], state["step_count"], own
        )
        return self.master.snapshot(state["version"])

    async def _start(
        self,
        version: int,
        first_update: int,
        step_count: int,
        own: Group,
        parts: Mapping[str, shards_pb2.AdoptPartRequest],
    ) -> FlatSnapshot:
        master = await self.thread.run_apart(
            self._make_master, version, first_update, step_count, own
        )
        if self.shards:
            await self.shards.adopt(parts, version=version, timeout=CALL_SECONDS)
        self.master = master
        snapshot = master.snapshot(version)
        if self.shards:
            snapshot.shards = self.shards.describe(version)
        return snapshot

    def _make_master(
        self, version: int, first_update: int, step_count: int, own: Group
    ) -> MasterWeights:
        weights = Weights(version, first_update, own.tensors)
        master = build_master(self._config, weights, own.vectors, step_count)
        self.thread.expect(master.layout.size)
        return master
