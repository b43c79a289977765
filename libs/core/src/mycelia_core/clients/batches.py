"""Batches as they come: put together from messages and shared memory, and inflated."""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mycelia.experience.v1 import tensor_pb2
from mycelia.replay.v1 import replay_pb2 as pb
from mycelia_core.clients.shared_segment import SharedSegment
from mycelia_core.codec import decode, dtype_from_proto, expected_bytes
from mycelia_core.compression import CompressedRows, decompress
from mycelia_core.parts import Assembler
from mycelia_core.rpc.errors import InvalidArgumentError
from mycelia_core.rpc.sample_wire import Response
from mycelia_core.specs import column_from_proto

logger = logging.getLogger(__name__)

MAX_BATCH_BYTES = 2**31
"""The largest batch that is taken in, inflated."""


@dataclass(frozen=True, slots=True)
class Batch:
    """B items whose windows are W rows long, context included. All arrays are read-only."""

    item_keys: NDArray[np.int64]
    """[B], what `ReplayClient.update_priorities` takes."""

    probabilities: NDArray[np.float64]
    """[B] with which each item was drawn."""

    row_counts: NDArray[np.int32]
    """[B] how many rows of each window are real, context not counted; the
    others repeat the last real one. Fewer than asked for at an episode's end,
    or before a gap in the stream, where the last row is an ordinary one."""

    times_sampled: NDArray[np.int32]
    """[B] how often each item has been sampled, this time included."""

    item_count: int
    """How many items the table held."""

    total_priority: float
    """The sum of their priorities, after the exponent."""

    context_rows: int
    """How many of the W rows are context; they come first."""

    columns: dict[str, NDArray[Any]]
    """Each [W, B, ...]: time first."""

    burn_in_rows: int = 0
    """How many of the W rows are burn-in; they follow the context, and then comes
    each item's first row."""

    burn_in_counts: NDArray[np.int32] = field(default_factory=lambda: np.zeros(0, np.int32))
    """[B] how many of these are real, the last ones; fewer at an episode's start."""

    item_columns: dict[str, NDArray[Any]] = field(default_factory=dict)
    """Each [B, ...]: what was given for the first real row of burn-in, such as a
    recurrent state."""


class BatchReader:
    """Takes in the messages of one `Sample` call. One thread owns it."""

    def __init__(self, send: Callable[[pb.SampleRequest], None]) -> None:
        """Starts without shared memory.

        Args:
          send: sends a request of the call; may be called by any thread.
        """
        self._send = send
        self._segment: SharedSegment | None = None
        self._header = pb.BatchHeader()
        self._assembler = Assembler((), 0)

    def add(self, message: Response) -> Batch | None:
        """Takes in a message; returns the batch that it completes.

        Raises:
          InvalidArgumentError: the message is malformed, or a row does not
            inflate to its shape.
          ResourceExhaustedError: the batch is too large.
        """
        response = message.head
        if response.HasField("shared_memory"):
            self._attach(response.shared_memory)
            return None
        if response.HasField("header"):
            self._header = response.header
            if not response.shared_memory_offsets_bytes:
                self._assembler = Assembler(_specs(self._header), MAX_BATCH_BYTES)
        if response.shared_memory_offsets_bytes:
            return _batch(self._header, self._read_shared(response))
        self._assembler.add(message.parts)
        return _batch(self._header, self._assembler.finish()) if response.last else None

    def _attach(self, offer: pb.SharedMemory) -> None:
        try:
            self._segment = SharedSegment(offer)
        except (OSError, ValueError) as error:
            logger.info("no shared memory with the server, so batches come by gRPC: %s", error)
        attached = self._segment is not None
        self._send(pb.SampleRequest(shared_memory_attached=attached))

    def _read_shared(self, response: pb.SampleResponse) -> dict[str, NDArray[Any]]:
        if self._segment is None:
            raise InvalidArgumentError("a batch is in shared memory, but none is attached")
        release = pb.SampleRequest(released_batches=[response.batch_index])
        view = self._segment.view(lambda: self._send(release))
        columns = {}
        offsets = response.shared_memory_offsets_bytes
        for spec, offset in zip(_specs(self._header), offsets, strict=True):
            dtype, shape = dtype_from_proto(spec.dtype, spec.name), tuple(spec.shape)
            size = expected_bytes(dtype, shape, spec.name)
            if not 0 <= offset <= len(view) - size:
                raise InvalidArgumentError(
                    f"{spec.name}: got {size} bytes from {offset} on of a segment of {len(view)}"
                )
            columns[spec.name] = view[offset : offset + size].view(dtype).reshape(shape)
        return columns


def _batch(header: pb.BatchHeader, columns: dict[str, NDArray[Any]]) -> Batch:
    for compressed in header.compressed_columns:
        columns[compressed.spec.name] = _inflate(compressed, columns[compressed.spec.name])
    return Batch(
        item_keys=decode(header.item_keys, name="item_keys"),
        probabilities=decode(header.probabilities, name="probabilities"),
        row_counts=decode(header.row_counts, name="row_counts"),
        times_sampled=decode(header.times_sampled, name="times_sampled"),
        item_count=header.item_count,
        total_priority=header.total_priority,
        context_rows=header.context_row_count,
        columns={spec.name: columns[spec.name] for spec in header.columns},
        burn_in_rows=header.burn_in_row_count,
        burn_in_counts=decode(header.burn_in_counts, name="burn_in_counts"),
        item_columns={spec.name: columns[spec.name] for spec in header.item_columns},
    )


def _specs(header: pb.BatchHeader) -> list[tensor_pb2.TensorSpec]:
    """Returns what the batch's bytes hold, in order."""
    return [*header.columns, *header.item_columns]


def _inflate(column: pb.CompressedColumn, data: NDArray[np.uint8]) -> NDArray[Any]:
    """Returns the values [W, B, ...] of a compressed column."""
    spec = column_from_proto(column.spec)
    lengths = decode(column.lengths, name=f"{spec.name}: lengths")
    index = decode(column.rows, name=f"{spec.name}: rows")
    if max(lengths.size, index.size) * spec.row_bytes > MAX_BATCH_BYTES:
        raise InvalidArgumentError(f"{spec.name}: inflates to more than {MAX_BATCH_BYTES} bytes")
    rows = CompressedRows.of(spec, lengths, data.data)
    if index.size and not 0 <= index.min() <= index.max() < len(rows):
        raise InvalidArgumentError(f"{spec.name}: rows are not all in [0, {len(rows)})")
    values = decompress(rows, index)
    values.flags.writeable = False
    return values
