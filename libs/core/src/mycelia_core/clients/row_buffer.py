"""Rows on their way: copied in as they are recorded, taken out as insert requests."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mycelia.experience.v1 import signature_pb2, tensor_pb2
from mycelia.replay.v1 import replay_pb2 as pb
from mycelia_core.clients.item_buffer import ItemBuffer
from mycelia_core.codec import byte_view, dtype_to_proto, encode
from mycelia_core.compression import compress
from mycelia_core.config import WindowConfig
from mycelia_core.parts import PART_BYTES
from mycelia_core.rpc.errors import InvalidArgumentError
from mycelia_core.rpc.insert_wire import LEAST_BYTES, Insert
from mycelia_core.rpc.options import MAX_MESSAGE_BYTES
from mycelia_core.specs import FIRST, Codec, Signature

Rows = NDArray[Any]
Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

MOST_CHUNKS = 4
"""How many chunks are held while the server is busy with earlier ones."""


class RowBuffer:
    """Holds up to `chunk_rows` rows of each stream, in order of arrival. One thread owns it."""

    def __init__(
        self,
        signature: Signature,
        stream_ids: Sequence[str],
        chunk_rows: int,
        window: WindowConfig | None = None,
    ) -> None:
        """Reserves room for `chunk_rows` rows of each stream.

        `window` is the table's: it says which rows need their item columns; None for all.

        Raises:
          InvalidArgumentError: a stream comes twice, there is none, or a row is
            too large for a message.
        """
        if not stream_ids or len(set(stream_ids)) != len(stream_ids):
            raise InvalidArgumentError(f"stream_ids: expected different names, got {stream_ids}")
        if chunk_rows < 1:
            raise InvalidArgumentError(f"chunk_rows: got {chunk_rows}, expected at least 1")
        self._stream_ids = list(stream_ids)
        self._chunk_rows = chunk_rows
        # Chunks that wait go together: a large request costs little more than a small one.
        chunk = chunk_rows * len(stream_ids)
        chunk_bytes = chunk * sum(spec.row_bytes for spec in signature.columns)
        self._most_chunks = max(1, min(MOST_CHUNKS, PART_BYTES // chunk_bytes))
        self._capacity = chunk * self._most_chunks
        self._specs = signature.columns
        self._names = frozenset(signature.names)
        self._first = signature.names.index(FIRST)
        self._dtypes = [dtype_to_proto(spec.dtype, spec.name) for spec in self._specs]
        self._columns = [np.empty((self._capacity, *s.shape), s.dtype) for s in self._specs]
        self._priorities = np.empty(self._capacity)
        self._streams = np.empty(self._capacity, np.int64)
        self._every_stream = np.arange(len(stream_ids))
        self._next_rows = np.zeros(len(stream_ids), np.int64)
        self._fill = np.zeros(len(stream_ids), np.int64)
        self._count = 0
        self._items = ItemBuffer(
            signature.item_columns, window, self._capacity, len(self._stream_ids)
        )
        self._request_rows = self._find_request_rows()

    def __len__(self) -> int:
        """How many rows are held."""
        return self._count

    @property
    def has_room(self) -> bool:
        """Whether another row of every stream can be held."""
        return bool(self._fill.max() < self._chunk_rows * self._most_chunks)

    @property
    def is_full(self) -> bool:
        """Whether a stream has a chunk together."""
        return bool(self._fill.max() >= self._chunk_rows)

    def append(
        self,
        columns: Mapping[str, Rows],
        streams: Ints | None = None,
        priorities: Floats | None = None,
        item_columns: Mapping[str, Rows] | None = None,
    ) -> None:
        """Copies in one row for each of some streams. Only while there is room.

        Args:
          columns: each [n, ...], exactly those of the signature.
          streams: [n] different indices of streams; None for all, in order.
          priorities: [n]; NaN, or None for all, where not known.
          item_columns: each [n, ...], exactly those of the signature.

        Raises:
          InvalidArgumentError: a column does not fit the signature; then
            nothing is recorded.
        """
        if streams is None:
            streams = self._every_stream
        elif len(set(streams.tolist())) != len(streams):
            raise InvalidArgumentError(f"streams: expected each once, got {streams.tolist()}")
        self._check(columns, len(streams), priorities)
        self._items.check(item_columns or {}, len(streams))
        end = self._count + len(streams)
        rows = slice(self._count, end)
        for spec, buffer in zip(self._specs, self._columns, strict=True):
            buffer[rows] = columns[spec.name]
        self._priorities[rows] = np.nan if priorities is None else priorities
        self._streams[rows] = streams
        self._items.append(rows, item_columns or {}, streams, columns[FIRST])
        self._fill[streams] += 1
        self._count = end

    def drop(self, stream: int) -> None:
        """Forgets the rows held of a stream's running episode.

        If rows of it were taken before, the stream's numbering skips a row, so
        that the server sees the gap and ends what it has of the episode there.
        """
        mine = np.flatnonzero(self._streams[: self._count] == stream)
        firsts = mine[self._columns[self._first][mine]]
        dropped = mine[mine >= firsts[-1]] if firsts.size else mine
        if not firsts.size:
            self._next_rows[stream] += 1
        kept = np.delete(np.arange(self._count), dropped)
        for buffer in (*self._columns, self._priorities, self._streams):
            buffer[: len(kept)] = buffer[kept]
        self._items.keep(kept)
        self._fill[stream] -= len(dropped)
        self._count = len(kept)

    def discard(self) -> int:
        """Forgets everything held and returns how many rows; their numbers are not given again."""
        count = self._count
        self._next_rows = self._next_rows + self._fill
        self._fill[:] = 0
        self._count = 0
        return count

    def take(self, run_id: str, table: str) -> Iterator[Insert]:
        """Yields everything held as requests without `sequence`, and forgets it.

        Large rows are spread over several requests, each within the size limit.
        """
        order = np.argsort(self._streams[: self._count], kind="stable")
        for start in range(0, self._count, self._request_rows):
            yield self._request(run_id, table, order[start : start + self._request_rows])
        self._fill[:] = 0
        self._count = 0

    def _request(self, run_id: str, table: str, order: Ints) -> Insert:
        counts = np.bincount(self._streams[order], minlength=len(self._stream_ids))
        starts = self._next_rows
        self._next_rows = starts + counts
        columns, data = self._column_data(order)
        head = pb.InsertRequest(
            run_id=run_id,
            table=table,
            segments=[
                pb.Segment(stream_id=stream_id, start_row=start, row_count=count)
                for stream_id, start, count in zip(
                    self._stream_ids, starts.tolist(), counts.tolist(), strict=True
                )
                if count
            ],
            columns=columns,
            priorities=_known_priorities(self._priorities[order]),
        )
        self._items.add_to(head, order)
        return Insert(head, data)

    def _column_data(self, order: Ints) -> tuple[list[pb.ColumnData], dict[str, memoryview]]:
        """Returns the columns, and apart from them the data of those that are large."""
        columns: list[pb.ColumnData] = []
        large: dict[str, memoryview] = {}
        for spec, dtype, buffer in zip(self._specs, self._dtypes, self._columns, strict=True):
            values = buffer.take(order, axis=0)
            if spec.codec is Codec.RAW:
                data = byte_view(values)
                tensor = tensor_pb2.Tensor(dtype=dtype, shape=values.shape)
                column = pb.ColumnData(name=spec.name, values=tensor)
            else:
                rows = compress(spec, values)
                data = memoryview(rows.data)
                lengths = signature_pb2.CompressedRows(lengths=encode(rows.lengths))
                column = pb.ColumnData(name=spec.name, compressed=lengths)
            if len(data) >= LEAST_BYTES:
                large[spec.name] = data
            elif spec.codec is Codec.RAW:
                column.values.data = bytes(data)
            else:
                column.compressed.data = bytes(data)
            columns.append(column)
        return columns, large

    def _check(self, columns: Mapping[str, Rows], count: int, priorities: Floats | None) -> None:
        for spec in self._specs:
            values = columns.get(spec.name)
            if values is None:
                raise InvalidArgumentError(f"column {spec.name!r} is missing; expected {spec}")
            if values.dtype != spec.dtype or values.shape != (count, *spec.shape):
                raise InvalidArgumentError(
                    f"column {spec.name!r}: got {values.dtype} {list(values.shape)}, "
                    f"expected {spec.dtype} {[count, *spec.shape]}"
                )
        if len(columns) != len(self._specs):
            unknown = sorted(columns.keys() - self._names)
            raise InvalidArgumentError(f"columns {unknown} are unknown; expected {self._names}")
        if priorities is not None and priorities.shape != (count,):
            raise InvalidArgumentError(
                f"priorities: got {list(priorities.shape)}, expected [{count}]"
            )

    def _find_request_rows(self) -> int:
        columns = sum(buffer[:1].nbytes for buffer in self._columns)
        row_bytes = 8 + columns + self._items.row_bytes
        # Half of the limit leaves room for names and segments.
        if row_bytes > MAX_MESSAGE_BYTES // 2:
            raise InvalidArgumentError(
                f"signature: a row has {row_bytes} bytes, expected at most {MAX_MESSAGE_BYTES // 2}"
            )
        return max(1, PART_BYTES // row_bytes)


def _known_priorities(priorities: Floats) -> tensor_pb2.Tensor | None:
    """Fills unknown priorities with the largest known one; None if none is known."""
    unknown = np.isnan(priorities)
    if unknown.all():
        return None
    if unknown.any():
        priorities = np.where(unknown, np.nanmax(priorities), priorities)
    return encode(priorities)
