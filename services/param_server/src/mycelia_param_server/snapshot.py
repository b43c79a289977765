"""Versions of the weights as they are held and handed out."""

import asyncio
import time
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from mycelia.params.v1 import params_pb2 as pb
from mycelia_core.parts import PART_BYTES, split, tensor_spec
from mycelia_core.weights import Weights, WeightsReader, narrow
from mycelia_param_server.layout import Layout

INLINE_BYTES = 256 * 1024
"""Up to here encoding takes less time than handing it to a thread."""


class Snapshot(Protocol):
    """One version of the weights. Immutable, so that a slow reader can take its time."""

    @property
    def version(self) -> int:
        """The version; 0 for the empty snapshot before the first publish."""

    def summary(self) -> pb.WeightsHeader:
        """Returns the header without tensors."""

    @property
    def nbytes(self) -> int:
        """About how many bytes it takes."""

    async def responses(self) -> tuple[bytes, ...]:
        """Returns the messages that carry it.

        `GetWeightsResponse`, `WatchWeightsResponse`, `GetPartResponse` and
        `PushGradientsResponse` have the same fields, so the same bytes answer
        all four, and any number of readers costs one encoding.
        """


@dataclass(frozen=True)
class EncodedSnapshot:
    """A version as it was published: encoded already."""

    header: pb.WeightsHeader
    encoded: tuple[bytes, ...]
    """The header's response, then those with the parts."""

    @property
    def version(self) -> int:
        """The version; 0 for the empty snapshot before the first publish."""
        return self.header.version

    @property
    def nbytes(self) -> int:
        """About how many bytes it takes."""
        return sum(len(response) for response in self.encoded)

    def summary(self) -> pb.WeightsHeader:
        """Returns the header without tensors."""
        header = pb.WeightsHeader()
        header.CopyFrom(self.header)
        header.ClearField("tensors")
        header.ClearField("shards")
        return header

    async def responses(self) -> tuple[bytes, ...]:
        """Returns the messages that carry it."""
        return self.encoded


@dataclass
class Timing:
    """Where the time of updates goes, beside the optimizer."""

    update_seconds: float = 0.0
    """Spent on averaging, stepping, merging and copying; the optimizer's time is in it."""

    encoding_seconds: float = 0.0


@dataclass(kw_only=True)
class FlatSnapshot:
    """A version as the optimizer left it: encoded when the first reader asks.

    One event loop owns it.
    """

    version: int
    learner_step: int
    layout: Layout
    values: NDArray[np.float32]
    """[P] not to be written to."""

    statistics: Mapping[str, NDArray[np.float64]]
    wire_dtype: np.dtype[Any]
    timing: Timing = field(default_factory=Timing)
    publish_time: float = field(default_factory=time.time)
    """In seconds since 1970."""

    shards: Sequence[pb.ShardPart] = ()
    """Where the rest of the version is."""

    _encoded: tuple[bytes, ...] = ()
    _encoding: asyncio.Task[tuple[bytes, ...]] | None = None

    @property
    def nbytes(self) -> int:
        """About how many bytes it takes, once it is encoded."""
        return self.values.nbytes + self.values.size * self.wire_dtype.itemsize

    def summary(self) -> pb.WeightsHeader:
        """Returns the header without tensors."""
        header = pb.WeightsHeader(version=self.version, learner_step=self.learner_step)
        header.publish_time.FromNanoseconds(int(self.publish_time * 1e9))
        return header

    def tensors(self) -> dict[str, NDArray[Any]]:
        """Returns all tensors by name, at full precision; views, not to be written to."""
        tensors: dict[str, NDArray[Any]] = {**self.layout.split(self.values), **self.statistics}
        return tensors

    async def responses(self) -> tuple[bytes, ...]:
        """Returns the messages that carry it."""
        if self._encoded:
            return self._encoded
        if self.values.nbytes <= INLINE_BYTES:
            self._encoded = self._encode()
            return self._encoded
        if self._encoding is None:
            self._encoding = asyncio.create_task(asyncio.to_thread(self._encode))
        self._encoded = await asyncio.shield(self._encoding)
        return self._encoded

    def _encode(self) -> tuple[bytes, ...]:
        start = time.perf_counter()
        values = narrow(self.values, self.wire_dtype)
        header = self.summary()
        header.narrowed = values.dtype != np.float32
        header.shards.extend(self.shards)
        snapshot = encode(header, {**self.layout.split(values), **self.statistics})
        self.timing.encoding_seconds += time.perf_counter() - start
        return snapshot.encoded


def encode(summary: pb.WeightsHeader, tensors: Mapping[str, NDArray[Any]]) -> EncodedSnapshot:
    """Encodes tensors, in C order, under a header that lacks only them and their checksum."""
    header = pb.WeightsHeader()
    header.CopyFrom(summary)
    for name, array in tensors.items():
        header.tensors.append(tensor_spec(name, array))
        # Not `tobytes`: that would copy.
        header.crc32 = zlib.crc32(array.reshape(-1).view(np.uint8).data, header.crc32)
    batches = split(tensors.values())
    encoded = [pb.WatchWeightsResponse(parts=parts).SerializeToString() for parts in batches]
    encoded[-1] += pb.WatchWeightsResponse(last=True).SerializeToString()
    first = pb.WatchWeightsResponse(header=header).SerializeToString()
    return EncodedSnapshot(header, join_first(first, encoded))


def decode(snapshot: EncodedSnapshot) -> Weights:
    """Returns the weights that a snapshot carries, 16 bits widened again."""
    reader = WeightsReader(snapshot.header)
    for data in snapshot.encoded:
        reader.add(pb.WatchWeightsResponse.FromString(data).parts)
    return reader.finish()


def join_first(header: bytes, encoded: list[bytes]) -> tuple[bytes, ...]:
    """Sends the header with the first parts if they fit a message together.

    Messages of protobuf are joined by joining their bytes. Small weights, those of
    most networks that a CPU trains, so travel in one message.
    """
    if len(header) + len(encoded[0]) <= PART_BYTES:
        return (header + encoded[0], *encoded[1:])
    return (header, *encoded)
