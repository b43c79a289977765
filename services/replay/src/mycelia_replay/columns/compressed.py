"""A column of compressed values, which differ in size, in the order they came.

The values lie one after another in segments of memory; a slot knows where its
value is. A segment is used again once every value in it has been overwritten:
in a ring the oldest go first, so there is never more than a segment to spare.
"""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from mycelia_core.compression import CompressedRows
from mycelia_core.rpc.errors import InvalidArgumentError
from mycelia_core.specs import ColumnSpec
from mycelia_replay.arrays import AnyArray, Ints
from mycelia_replay.columns.column import Allocate, CompressedWindows, Values
from mycelia_replay.state import State, UnfitStateError

SEGMENT_BYTES = 1024 * 1024
"""Small against a table of images, large against a value."""

LENGTHS, DATA = "lengths", "data"


class CompressedColumn:
    """A `Column`. Memory grows with what is stored and shrinks as it is overwritten."""

    def __init__(self, spec: ColumnSpec, capacity: int) -> None:
        """Prepares for `capacity` values."""
        self.spec = spec
        self._segment_of = np.full(capacity, -1, np.int32)
        self._starts = np.zeros(capacity, np.int32)
        self._lengths = np.zeros(capacity, np.int32)
        self._segments: list[memoryview] = []
        self._live_counts: list[int] = []
        self._spare: list[int] = []
        self._current = -1
        self._filled_bytes = 0

    @property
    def nbytes(self) -> int:
        """Bytes held: the segments', and what says where each value is."""
        places = (self._segment_of, self._starts, self._lengths)
        return sum(map(len, self._segments)) + sum(array.nbytes for array in places)

    def used_bytes(self, slot_count: int) -> int:
        """Returns `nbytes`: memory is taken as it is needed."""
        return self.nbytes

    def write(self, start: int, values: Values) -> None:
        """Sets the values of the slots from `start` on."""
        if not isinstance(values, CompressedRows):
            raise TypeError(f"column {self.spec.name!r} is compressed")
        self._forget(slice(start, start + len(values)))
        ends, view = values.ends, memoryview(values.data)
        first, begin = 0, 0
        while first < len(values):
            room = self._room(int(values.lengths[first]))
            last = int(np.searchsorted(ends, begin + room, side="right"))
            end = int(ends[last - 1])
            filled = self._filled_bytes
            self._segments[self._current][filled : filled + end - begin] = view[begin:end]
            slots = slice(start + first, start + last)
            self._segment_of[slots] = self._current
            self._starts[slots] = filled + ends[first:last] - values.lengths[first:last] - begin
            self._lengths[slots] = values.lengths[first:last]
            self._live_counts[self._current] += last - first
            self._filled_bytes += end - begin
            first, begin = last, end

    def gather(self, window: Ints, allocate: Allocate) -> CompressedWindows:
        """Returns the distinct values at `window` [W, B], and which of them goes where."""
        slots, index = np.unique(window, return_inverse=True)
        return CompressedWindows(self._rows(slots), index.reshape(window.shape).astype(np.int32))

    def read(self, slots: Ints) -> dict[str, AnyArray]:
        """Copies the values at `slots` [n]: their lengths, and their bytes together."""
        rows = self._rows(slots)
        return {LENGTHS: rows.lengths, DATA: np.frombuffer(rows.data, np.uint8)}

    def restore(self, start: int, arrays: Mapping[str, AnyArray], skip: int) -> int:
        """Sets the values from `start` on, wrapping round; see `Column.restore`."""
        state = State(arrays)
        try:
            rows = CompressedRows.of(self.spec, state.array(LENGTHS), state.array(DATA).data)
        except InvalidArgumentError as error:
            raise UnfitStateError(str(error)) from error
        rows = rows[skip:]
        head = min(len(rows), len(self._lengths) - start)
        self.write(start, rows[:head])
        self.write(0, rows[head:])
        return len(rows)

    def _rows(self, slots: Ints) -> CompressedRows:
        lengths = self._lengths[slots]
        segments, starts = self._segment_of[slots], self._starts[slots]
        data = b"".join(
            [
                self._segments[segment][start:end]
                for segment, start, end in _runs(segments, starts, starts + lengths)
            ]
        )
        return CompressedRows(self.spec, lengths, data)

    def _room(self, length: int) -> int:
        """Makes room for `length` bytes in the current segment; returns how many it has left."""
        if self._current < 0 or self._filled_bytes + length > len(self._segments[self._current]):
            self._begin_segment(max(SEGMENT_BYTES, length))
        return len(self._segments[self._current]) - self._filled_bytes

    def _begin_segment(self, size: int) -> None:
        full, self._current = self._current, -1
        if full >= 0 and not self._live_counts[full]:
            self._retire(full)
        if self._spare:
            self._current = self._spare.pop()
        else:
            self._current = len(self._segments)
            self._segments.append(memoryview(b""))
            self._live_counts.append(0)
        if len(self._segments[self._current]) < size:
            self._segments[self._current] = memoryview(bytearray(size))
        self._filled_bytes = 0

    def _forget(self, slots: slice) -> None:
        """Takes note that the values of `slots` are about to be overwritten."""
        segments, counts = np.unique(self._segment_of[slots], return_counts=True)
        self._segment_of[slots] = -1
        for segment, count in zip(segments.tolist(), counts.tolist(), strict=True):
            if segment >= 0:
                self._live_counts[segment] -= count
                if not self._live_counts[segment] and segment != self._current:
                    self._retire(segment)

    def _retire(self, segment: int) -> None:
        """Keeps one empty segment for the next values and gives the memory of others back."""
        if self._spare:
            self._segments[segment] = memoryview(b"")
            self._spare.insert(0, segment)
        else:
            self._spare.append(segment)


def _runs(
    segments: NDArray[np.int32], starts: NDArray[np.int32], ends: NDArray[np.int32]
) -> list[tuple[int, int, int]]:
    """Joins values that lie next to one another; returns segment, start and end of each run."""
    if not len(segments):
        return []
    breaks = (segments[1:] != segments[:-1]) | (starts[1:] != ends[:-1])
    first = np.r_[0, breaks.nonzero()[0] + 1]
    last = np.r_[first[1:] - 1, len(segments) - 1]
    runs = (segments[first].tolist(), starts[first].tolist(), ends[last].tolist())
    return list(zip(*runs, strict=True))
