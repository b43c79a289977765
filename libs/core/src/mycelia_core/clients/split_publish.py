"""Publishing weights that are split over several servers: the parts first, the version last."""

import json
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

from numpy.typing import NDArray

from mycelia.params.v1 import params_pb2 as pb
from mycelia.run.v1 import run_pb2
from mycelia_core.clients.waiting import NotYetError
from mycelia_core.clients.weight_parts import WeightParts
from mycelia_core.shard_plan import balance
from mycelia_core.weights import Weights


def shard_count(run: run_pb2.Run) -> int:
    """Returns over how many servers a run's weights are split, the registry's included."""
    section = json.loads(run.config_json).get("param_server", {})
    return int(section.get("shards", 1))


def find_shards(response: run_pb2.GetRunResponse) -> list[str]:
    """Returns the addresses of the shards beside the registry's server.

    Where one has taken a lost one's place, it has been heard of last.

    Raises:
      NotYetError: there are too few.
    """
    wanted = shard_count(response.run) - 1
    there = [
        member
        for member in response.members
        if member.role == run_pb2.ROLE_PARAM_SHARD and member.alive and member.address
    ]
    if len(there) < wanted:
        raise NotYetError(f"{len(there)} of {wanted} further shards of the weights are there")
    there.sort(key=lambda member: member.last_seen_time.ToNanoseconds(), reverse=True)
    return sorted(member.address for member in there[:wanted])


class SplitPublish:
    """One publish, which may be tried several times. One thread owns it."""

    def __init__(
        self, parts: WeightParts, tensors: Mapping[str, NDArray[Any]], learner_step: int
    ) -> None:
        """Takes the tensors as they are to be sent."""
        self._parts = parts
        self._tensors = tensors
        self._learner_step = learner_step
        self._part_id = uuid.uuid4().hex
        self._groups: list[dict[str, NDArray[Any]]] = []
        self._pending: dict[str, Future[None]] = {}

    def begin(self, shards: Sequence[str], *, narrowed: bool, timeout: float) -> Weights:
        """Begins to send all parts but the first, which it returns, side by side."""
        if len(self._groups) != len(shards) + 1:
            self._groups = balance(self._tensors, len(shards) + 1)
        first, *others = self._groups
        self._pending = {
            address: self._parts.put(
                address,
                self._part_id,
                Weights(0, self._learner_step, group),
                narrowed=narrowed,
                timeout=timeout,
            )
            for address, group in zip(shards, others, strict=True)
            if group
        }
        return Weights(0, self._learner_step, first)

    def describe(self) -> list[pb.ShardPart]:
        """Returns what the version's header has to say of the parts on their way."""
        return [pb.ShardPart(address=address, part_id=self._part_id) for address in self._pending]

    def check(self) -> None:
        """Raises what a part's publish failed with, having waited for all of them."""
        for part in self._pending.values():
            part.result()

    def held_back(
        self, requests: Iterable[pb.PublishWeightsRequest]
    ) -> Iterator[pb.PublishWeightsRequest]:
        """Yields requests, the last one only when all parts have arrived.

        Without it the version is not complete, so it is never seen with a part missing.
        """
        last: pb.PublishWeightsRequest | None = None
        for request in requests:
            if last is not None:
                yield last
            last = request
        if last is not None and all(part.exception() is None for part in self._pending.values()):
            yield last
