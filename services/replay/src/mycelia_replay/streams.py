"""Streams: what the table remembers of each, so that rows connect and none is stored twice."""

from collections.abc import Sequence

import numpy as np

from mycelia_core.rpc.errors import InvalidArgumentError
from mycelia_replay.arrays import Bools, Ints
from mycelia_replay.arrival import Arrival, without_first
from mycelia_replay.rows import Segment
from mycelia_replay.state import State

MAX_STREAMS = 65_536
"""How many streams are remembered; beyond, the longest idle is forgotten."""

_BLANK = 0
"""The index of the stream that has no rows: what an unknown stream looks like."""

_IN_USE = np.iinfo(np.int64).max
"""A key newer than any: whoever has it is not the longest idle."""


class Streams:
    """Remembers, for each stream, its next row and the keys of its last rows.

    The table owns it; not thread-safe.
    """

    def __init__(self, history_rows: int, max_streams: int = MAX_STREAMS) -> None:
        """Starts without streams.

        Args:
          history_rows: how many rows back from a stream's newest an item may reach.
          max_streams: how many streams are remembered.
        """
        self._max_streams = max_streams
        self._depth = max(1, history_rows)
        self._index: dict[str, int] = {}
        self._ids: list[str] = [""]
        self._next_row = np.zeros(1, np.int64)
        self._position = np.full(1, -1)
        self._ended = np.ones(1, np.bool_)
        self._history = np.full((1, self._depth), -1)

    def __len__(self) -> int:
        """How many streams are remembered."""
        return len(self._index)

    @property
    def nbytes(self) -> int:
        """About how many bytes are in use."""
        arrays = (self._next_row, self._position, self._ended, self._history)
        return sum(a.nbytes for a in arrays) + sum(len(name) + 150 for name in self._ids)

    def place(self, segments: Sequence[Segment], first: Bools, ended: Bools) -> Arrival:
        """Finds out which rows are new and where in their streams they belong.

        Changes nothing.

        Args:
          segments: of the request.
          first: [rows] whether a row is marked as the first of an episode.
          ended: [rows] whether it is marked as the last of one.

        Raises:
          InvalidArgumentError: a row goes on with an episode that has ended,
            or begins one while another goes on, or there are too many segments.
        """
        if len(segments) > self._max_streams:
            raise InvalidArgumentError(
                f"segments: got {len(segments)}, expected at most {self._max_streams}"
            )
        find = self._index.get
        streams = np.array([find(s.stream_id, _BLANK) for s in segments], np.int64)
        start_rows = np.array([s.start_row for s in segments], np.int64)
        counts = np.array([s.row_count for s in segments], np.int64)
        ahead = start_rows - self._next_row[streams]
        missing = np.maximum(ahead, 0)
        known = np.minimum(np.maximum(-ahead, 0), counts)
        kept = None
        duplicate_count = int(known.sum())
        if duplicate_count:
            kept = without_first(counts, known)
            first, ended, counts = first[kept], ended[kept], counts - known
            left = counts.nonzero()[0]
            segments = [segments[i] for i in left.tolist()]
            streams, counts, missing = streams[left], counts[left], missing[left]
            known, start_rows = known[left], start_rows[left]
        return self._connect(
            segments,
            streams=streams,
            counts=counts,
            missing=missing,
            kept=kept,
            first=first,
            ended=ended,
            duplicate_count=duplicate_count,
        )

    def _connect(
        self,
        segments: Sequence[Segment],
        *,
        streams: Ints,
        counts: Ints,
        missing: Ints,
        kept: Ints | None,
        first: Bools,
        ended: Bools,
        duplicate_count: int,
    ) -> Arrival:
        rows = np.arange(len(first))
        segment_of = np.repeat(np.arange(len(counts)), counts)
        starts = np.cumsum(counts) - counts
        unconnected = (missing > 0) | (streams == _BLANK)
        after_end = np.empty(len(first), np.bool_)
        after_end[1:] = ended[:-1]
        after_end[starts] = self._ended[streams]
        begins = first.copy()
        begins[starts[unconnected]] = True
        after_end[starts[unconnected]] = first[starts[unconnected]]
        if not np.array_equal(after_end, first):
            self._refuse(segments, segment_of, rows - starts[segment_of], after_end, first)
        # The position counts from the last row that begins something: a
        # fragment, where it is 0, or the segment, where the stream's goes on.
        origins = np.zeros(len(first), np.int64)
        origins[starts] = starts
        origins[begins] = rows[begins]
        origins = np.maximum.accumulate(origins)
        at_origin = np.zeros(len(first), np.int64)
        at_origin[starts] = self._position[streams] + 1
        at_origin[begins] = 0
        return Arrival(
            segments=segments,
            streams=streams,
            kept=kept,
            starts=starts,
            counts=counts,
            segment_of=segment_of,
            offsets=rows - starts[segment_of],
            positions=rows - origins + at_origin[origins],
            begins=begins,
            ended=ended,
            cut=((missing > 0) & ~self._ended[streams]).nonzero()[0],
            new_count=len(first),
            duplicate_count=duplicate_count,
            missing_count=int(missing.sum()),
        )

    def _refuse(
        self,
        segments: Sequence[Segment],
        segment_of: Ints,
        offsets: Ints,
        after_end: Bools,
        first: Bools,
    ) -> None:
        row = int((after_end != first).nonzero()[0][0])
        segment, offset = segments[segment_of[row]], int(offsets[row])
        end_row = segment.start_row + segment.row_count
        count = int((segment_of == segment_of[row]).sum())
        number = end_row - count + offset
        if first[row]:
            problem = f"`first` is set, but row {number - 1} did not end its episode"
        else:
            problem = f"row {number - 1} ended its episode, so `first` must be set"
        raise InvalidArgumentError(
            f"stream {segment.stream_id!r}, row {number}: {problem}; "
            "an item would reach outside its episode"
        )

    def ancestors(
        self, arrival: Arrival, first_key: int, segments: Ints, offsets: Ints, back: Ints
    ) -> Ints:
        """Returns the keys of the rows `back` rows before others of the same stream.

        Args:
          arrival: what is being stored.
          first_key: the key of its first row.
          segments: [n] whose rows.
          offsets: [n] which rows of the segments; -1 for the row before the first.
          back: [n] how far back; no further than the fragment's first row.
        """
        places = offsets - back
        new_keys = first_key + arrival.starts[segments] + places
        columns = np.maximum(self._depth + np.minimum(places, -1), 0)
        old_keys = self._history[arrival.streams[segments], columns]
        return np.where(places >= 0, new_keys, old_keys)

    def last_positions(self, arrival: Arrival) -> Ints:
        """Returns the position [S] of the row before each segment's first one."""
        positions: Ints = self._position[arrival.streams]
        return positions

    def last_keys(self, arrival: Arrival) -> Ints:
        """Returns the key [S] of the row before each segment's first one; -1 for none."""
        keys: Ints = self._history[arrival.streams, -1]
        return keys

    def commit(self, arrival: Arrival, first_key: int) -> None:
        """Takes note of rows that have been stored under `first_key` and after."""
        streams = self._index_all(arrival)
        last = arrival.starts + arrival.counts - 1
        self._next_row[streams] = [s.start_row + s.row_count for s in arrival.segments]
        self._position[streams] = arrival.positions[last]
        self._ended[streams] = arrival.ended[last]
        # [S, depth]: the last `depth` places of history and new rows together.
        places = arrival.counts[:, None] - self._depth + np.arange(self._depth)
        new_keys = (first_key + arrival.starts)[:, None] + places
        columns = np.maximum(self._depth + np.minimum(places, -1), 0)
        old_keys = self._history[streams[:, None], columns]
        self._history[streams] = np.where(places >= 0, new_keys, old_keys)

    def state(self) -> State:
        """Copies what is remembered of each stream."""
        count = len(self._ids)
        return State.of(
            {
                "next_row": self._next_row[:count],
                "position": self._position[:count],
                "ended": self._ended[:count],
                "history": self._history[:count],
            },
            ids=self._ids[1:],
        )

    def load_state(self, state: State) -> None:
        """Takes over what `state` returned.

        Raises:
          UnfitStateError: it is for items of another length.
        """
        self._ids = ["", *state.scalar("ids")]
        self._index = {stream_id: i for i, stream_id in enumerate(self._ids) if i}
        count = len(self._ids)
        self._next_row = np.zeros(count, np.int64)
        self._position = np.full(count, -1)
        self._ended = np.ones(count, np.bool_)
        self._history = np.full((count, self._depth), -1)
        state.copy_into(
            next_row=self._next_row,
            position=self._position,
            ended=self._ended,
            history=self._history,
        )

    def _index_all(self, arrival: Arrival) -> Ints:
        """Returns the index [S] of each segment's stream, adding those not seen before."""
        new = (arrival.streams == _BLANK).nonzero()[0]
        if not len(new):
            return arrival.streams
        streams = arrival.streams.copy()
        known = streams[streams != _BLANK]
        # None of this arrival's own streams may be forgotten to make room for another.
        last_keys = self._history[known, -1]
        self._history[known, -1] = _IN_USE
        for i in new.tolist():
            streams[i] = self._add(arrival.segments[i].stream_id)
        self._history[known, -1] = last_keys
        return streams

    def _add(self, stream_id: str) -> int:
        if len(self._index) >= self._max_streams:
            index = 1 + int(self._history[1 : len(self._ids), -1].argmin())
            del self._index[self._ids[index]]
            self._ids[index] = stream_id
        else:
            index = len(self._ids)
            self._ids.append(stream_id)
            self._grow(index + 1)
        self._index[stream_id] = index
        self._history[index] = -1
        self._history[index, -1] = _IN_USE
        return index

    def _grow(self, count: int) -> None:
        if count <= len(self._next_row):
            return
        more = len(self._next_row)
        self._next_row = np.concatenate([self._next_row, np.zeros(more, np.int64)])
        self._position = np.concatenate([self._position, np.full(more, -1)])
        self._ended = np.concatenate([self._ended, np.ones(more, np.bool_)])
        self._history = np.concatenate([self._history, np.full((more, self._depth), -1)])
