"""Sends the batches of one `Sample` call: as messages, or through shared memory."""

import logging
from collections.abc import AsyncGenerator, Iterator, Mapping

import numpy as np

from mycelia.replay.v1 import replay_pb2 as pb
from mycelia_core.codec import encode
from mycelia_core.parts import cut, tensor_spec
from mycelia_core.rpc import sample_wire
from mycelia_core.specs import column_to_proto
from mycelia_replay.arrays import AnyArray
from mycelia_replay.columns.column import CompressedWindows, Gathered
from mycelia_replay.credit import Credit
from mycelia_replay.gate import Gate
from mycelia_replay.shared_memory import LEAST_BATCH_BYTES, Place, SharedMemory, is_local
from mycelia_replay.table_results import Sampled

logger = logging.getLogger(__name__)

HELD_BATCHES = 2
"""How many batches a caller may hold on to beside those that it has granted credit for."""


class BatchSender:
    """Draws batches as credit is granted. One call owns it."""

    def __init__(self, gate: Gate, credit: Credit, first: pb.SampleRequest, peer: str) -> None:
        """Prepares to send what `first` asks for.

        Args:
          gate: of the table.
          credit: of the call.
          first: its first request.
          peer: the caller, as gRPC names it.
        """
        self._gate = gate
        self._credit = credit
        self._batch_size = first.batch_size
        self._place_count = first.credit + HELD_BATCHES
        self._may_share = first.accepts_shared_memory and is_local(peer)

    async def messages(self) -> AsyncGenerator[bytes, None]:
        """Yields messages, serialized, until no more credit will come."""
        batch_index = 0
        while await self._credit.take():
            memory = self._credit.shared_memory
            place = memory.place() if memory else None
            allocate = place.allocate if place else np.empty
            sampled = await self._gate.sample(self._batch_size, allocate)
            payload = {name: _payload(values) for name, values in sampled.columns.items()}
            payload |= sampled.item_columns
            header = self._header(sampled, payload)
            offsets = _offsets(place, payload) if place else None
            if memory and offsets:
                memory.use(batch_index)
                yield pb.SampleResponse(
                    batch_index=batch_index,
                    header=header,
                    shared_memory_offsets_bytes=offsets,
                    last=True,
                ).SerializeToString()
            else:
                for message in _in_parts(batch_index, header, payload):
                    yield message
            if self._may_share:
                self._may_share = False
                for offer in self._offer(sum(array.nbytes for array in payload.values())):
                    yield offer
            batch_index += 1

    def _offer(self, batch_bytes: int) -> Iterator[bytes]:
        if batch_bytes < LEAST_BATCH_BYTES:
            return
        try:
            self._credit.shared_memory = SharedMemory(batch_bytes, self._place_count)
        except OSError as error:
            logger.info("no shared memory for batches of %d bytes: %s", batch_bytes, error)
        else:
            offer = self._credit.shared_memory.offer
            yield pb.SampleResponse(shared_memory=offer).SerializeToString()

    def _header(self, sampled: Sampled, payload: Mapping[str, AnyArray]) -> pb.BatchHeader:
        return pb.BatchHeader(
            item_keys=encode(sampled.item_keys),
            probabilities=encode(sampled.probabilities),
            row_counts=encode(sampled.row_counts),
            times_sampled=encode(sampled.times_sampled),
            item_count=sampled.item_count,
            total_priority=sampled.total_priority,
            context_row_count=self._gate.table.window.context_rows,
            burn_in_row_count=self._gate.table.window.burn_in_rows,
            burn_in_counts=encode(sampled.burn_in_counts),
            columns=[tensor_spec(name, payload[name]) for name in sampled.columns],
            item_columns=[tensor_spec(name, payload[name]) for name in sampled.item_columns],
            compressed_columns=[
                pb.CompressedColumn(
                    spec=column_to_proto(windows.rows.spec),
                    lengths=encode(windows.rows.lengths),
                    rows=encode(windows.index),
                )
                for windows in sampled.columns.values()
                if isinstance(windows, CompressedWindows)
            ],
        )


def _payload(values: Gathered) -> AnyArray:
    """Returns what travels of a column: the values, or the bytes of those compressed."""
    if isinstance(values, CompressedWindows):
        return np.frombuffer(values.rows.data, np.uint8)
    return values


def _offsets(place: Place, payload: Mapping[str, AnyArray]) -> list[int] | None:
    """Returns where in shared memory each array lies, or None if one has no room there."""
    offsets = [place.offset_of(array) for array in payload.values()]
    found = [offset for offset in offsets if offset is not None]
    return found if len(found) == len(offsets) else None


def _in_parts(
    batch_index: int, header: pb.BatchHeader, payload: Mapping[str, AnyArray]
) -> Iterator[bytes]:
    """Yields a batch as one message, or several if it is large."""
    head = pb.SampleResponse(batch_index=batch_index, header=header)
    lists = list(cut(payload.values()))
    for i, parts in enumerate(lists):
        head.last = i == len(lists) - 1
        yield sample_wire.write(head, parts)
        head = pb.SampleResponse(batch_index=batch_index)
