"""A checkpoint of weights on several servers is one of the whole, whatever their number."""

import asyncio
import contextlib
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mycelia.params.v1 import params_pb2, shards_pb2
from mycelia_core.clients.weight_parts import WeightParts
from mycelia_core.parts import tensor_spec
from mycelia_core.shard_plan import balance
from mycelia_core.weights import STATISTICS, Weights
from mycelia_param_server.checkpoint import OPTIMIZER, WEIGHTS, Checkpoint
from mycelia_param_server.layout import Layout

PART_SECONDS = 30.0
"""The deadline of each part that another server keeps."""


@dataclass(frozen=True, slots=True)
class Group:
    """The tensors on one server, and its optimizer."""

    tensors: Mapping[str, NDArray[Any]]
    """By name, in the order of the vectors; running statistics among them."""

    vectors: Mapping[str, NDArray[Any]]
    """The optimizer's, each over all trained tensors end to end, by name."""

    @property
    def trained(self) -> dict[str, NDArray[Any]]:
        """The tensors without the statistics."""
        return {n: t for n, t in self.tensors.items() if not n.startswith(STATISTICS)}


def join(groups: Sequence[Group]) -> tuple[dict[str, NDArray[Any]], list[str]]:
    """Returns a checkpoint's tensors, and the names of the weights in the vectors' order."""
    tensors: dict[str, NDArray[Any]] = {}
    for group in groups:
        tensors |= group.trained
    for group in groups:
        tensors |= group.tensors
    vectors = {
        name: np.concatenate([group.vectors[name] for group in groups])
        for name in groups[0].vectors
    }
    content = {WEIGHTS + name: tensor for name, tensor in tensors.items()}
    content |= {OPTIMIZER + name: vector for name, vector in vectors.items()}
    return content, list(tensors)


def split(saved: Checkpoint, count: int) -> list[Group]:
    """Splits a checkpoint's weights and optimizer over `count` servers.

    Raises:
      KeyError, ValueError: something is missing, or has another size than the weights.
    """
    tensors = saved.under(WEIGHTS)
    weights = {name: tensors[name] for name in saved.state["names"]}
    layout = Layout.of(tensor_spec(name, tensor) for name, tensor in weights.items())
    if count == 1:
        return [Group(weights, saved.under(OPTIMIZER))]
    vectors = {}
    for name, vector in saved.under(OPTIMIZER).items():
        if vector.shape != (layout.size,):
            raise ValueError(f"optimizer/{name}: got {vector.shape}, expected {(layout.size,)}")
        vectors[name] = layout.split(vector)
    return [
        Group(
            tensors,
            {
                name: np.concatenate([views[n].reshape(-1) for n in tensors if n in views])
                for name, views in vectors.items()
            },
        )
        for tensors in balance(weights, count)
        if tensors
    ]


async def put(run_id: str, groups: Mapping[str, Group]) -> dict[str, shards_pb2.AdoptPartRequest]:
    """Puts groups on shards, by address; returns what they are called there.

    Raises:
      StatusError, TimeoutError: a shard did not take its part.
    """
    with contextlib.closing(WeightParts(run_id)) as parts:
        requests, pending = {}, []
        for address, group in groups.items():
            request = requests[address] = shards_pb2.AdoptPartRequest(part_id=uuid.uuid4().hex)
            contents = {request.part_id: group.tensors}
            if group.vectors:
                request.optimizer_part_id = uuid.uuid4().hex
                contents[request.optimizer_part_id] = group.vectors
            pending += [
                parts.put(
                    address, part_id, Weights(0, 0, tensors), narrowed=False, timeout=PART_SECONDS
                )
                for part_id, tensors in contents.items()
            ]
        await asyncio.gather(*map(asyncio.wrap_future, pending))
    return requests


async def fetch(run_id: str, kept: Mapping[str, shards_pb2.KeepStateResponse]) -> list[Group]:
    """Fetches the groups that shards have copied.

    Raises:
      StatusError, TimeoutError: a shard did not give its part.
    """
    if not kept:
        return []
    with contextlib.closing(WeightParts(run_id)) as parts:

        def begin(address: str, part_id: str) -> asyncio.Future[Weights]:
            part = params_pb2.ShardPart(address=address, part_id=part_id)
            return asyncio.wrap_future(parts.fetch(part, timeout=PART_SECONDS))

        weights = [begin(address, names.part_id) for address, names in kept.items()]
        vectors = [
            begin(address, names.optimizer_part_id)
            for address, names in kept.items()
            if names.optimizer_part_id
        ]
        fetched = await asyncio.gather(*weights)
        others = await asyncio.gather(*vectors) or [Weights(0, 0, {})] * len(weights)
    return [Group(w.tensors, v.tensors) for w, v in zip(fetched, others, strict=True)]
