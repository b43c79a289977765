"""The ring: rows by column, each linked to its neighbours.

Rows are numbered by a counter that never goes back: the row's *key*. Row k lies
in slot k % capacity until row k + capacity overwrites it, so a key tells which
generation of a slot is meant.

    slot        0    1    2    3    4    5         capacity 6, 8 rows so far
    key         6    7    2    3    4    5
    stream      a    b    a    b    b    a
    next        0    1    5    4    1    0         the newest of a stream: itself
    previous    5    4    2    3    3    2         the first of a fragment: itself
"""

from collections.abc import Mapping

import numpy as np

from mycelia_core.specs import Codec, ColumnSpec, Signature
from mycelia_replay.arrays import AnyArray, Ints
from mycelia_replay.arrival import Arrival
from mycelia_replay.columns.column import Allocate, Column, Gathered, Values
from mycelia_replay.columns.compressed import CompressedColumn
from mycelia_replay.columns.dense import DenseColumn
from mycelia_replay.row_hold import RowHold
from mycelia_replay.state import State


class Ring:
    """A fixed number of rows, the oldest overwritten first. The table owns it."""

    def __init__(self, signature: Signature, capacity: int) -> None:
        """Reserves memory for `capacity` rows; pages are touched as they fill."""
        self.capacity = capacity
        self.next_key = 0
        """The key that the next row will have."""
        self._oldest_kept = 0
        self._columns = {
            column.name: _make_column(column, capacity) for column in signature.columns
        }
        self._next = np.zeros(capacity, np.int64)
        self._previous = np.zeros(capacity, np.int64)
        self._hold: RowHold | None = None

    def __len__(self) -> int:
        """How many rows are held."""
        return self.next_key - self.oldest_key()

    @property
    def nbytes(self) -> int:
        """Bytes reserved, or held where the size is not known before."""
        columns = sum(column.nbytes for column in self._columns.values())
        return columns + self._next.nbytes + self._previous.nbytes

    @property
    def used_bytes(self) -> int:
        """Bytes of that in use: rows that have been stored since the start, and their links."""
        used = min(self.capacity, self.next_key)
        columns = sum(column.used_bytes(used) for column in self._columns.values())
        return columns + self._next[:used].nbytes + self._previous[:used].nbytes

    def oldest_key(self, after: int = 0) -> int:
        """Returns the oldest key still held once `after` more rows are stored."""
        return max(self._oldest_kept, self.next_key + after - self.capacity)

    def slots_to_overwrite(self, count: int) -> Ints:
        """Returns the slots of the rows that go when `count` rows are stored, oldest first."""
        return np.arange(self.oldest_key(), self.oldest_key(count)) % self.capacity

    def keys(self, slots: Ints) -> Ints:
        """Returns the keys of the rows in `slots` [n], all of which have been filled."""
        newest = self.next_key - 1
        return newest - (newest - slots) % self.capacity

    def store(self, arrival: Arrival, columns: Mapping[str, Values], last_keys: Ints) -> None:
        """Writes new rows over the oldest ones and links them.

        Args:
          arrival: where the rows belong; at most `capacity` of them.
          columns: each [R, ...].
          last_keys: [S] the key of the row before each segment's first; -1 for none.
        """
        count = arrival.new_count
        self._write(columns, count)
        keys = np.arange(self.next_key, self.next_key + count)
        slots = keys % self.capacity
        previous, following = slots - 1, slots + 1
        previous[0], following[-1] = slots[0], slots[-1]
        previous[previous < 0] += self.capacity
        following[following == self.capacity] = 0
        before = last_keys % self.capacity
        previous[arrival.starts] = before
        previous[arrival.begins] = slots[arrival.begins]
        last = arrival.starts + arrival.counts - 1
        following[last] = slots[last]
        after_begin = arrival.begins.nonzero()[0] - 1
        after_begin = after_begin[after_begin >= 0]
        following[after_begin] = slots[after_begin]
        self._next[slots] = following
        self._previous[slots] = previous
        # The row before a segment learns its successor, unless a fragment
        # begins here or it is being overwritten by this very request.
        joined = ~arrival.begins[arrival.starts] & (last_keys >= self.oldest_key(count))
        self._next[before[joined]] = slots[arrival.starts[joined]]
        self.next_key += count

    def clear(self) -> int:
        """Drops every row and returns how many; keys go on."""
        count = len(self)
        self._oldest_kept = self.next_key
        return count

    def follow(self, slots: Ints) -> Ints:
        """Returns the slots of the rows after those in `slots` [n]; the last stays where it is."""
        return self._next.take(slots)

    def window(self, slots: Ints, row_count: int, context_count: int) -> Ints:
        """Returns the slots [context_count + row_count, n] of the windows that begin at `slots`.

        Past a fragment's end its last row is repeated, before its beginning its first.
        """
        window = np.empty((context_count + row_count, len(slots)), np.int64)
        window[context_count] = slots
        for i in range(context_count, 0, -1):
            self._previous.take(window[i], out=window[i - 1], mode="clip")
        for i in range(context_count + 1, len(window)):
            self._next.take(window[i - 1], out=window[i], mode="clip")
        return window

    def gather(self, window: Ints, allocate: Allocate = np.empty) -> dict[str, Gathered]:
        """Returns copies of the rows at `window` [W, n], column by column: [W, n, ...]."""
        return {name: column.gather(window, allocate) for name, column in self._columns.items()}

    def state(self) -> State:
        """Copies all but the rows themselves; those are for `hold`."""
        return State.of(
            {"next": self._next, "previous": self._previous},
            next_key=self.next_key,
            oldest_kept=self._oldest_kept,
        )

    def load_state(self, state: State) -> None:
        """Takes over what `state` returned; the rows are for `load_rows`.

        Raises:
          UnfitStateError: it is of a ring of another capacity.
        """
        state.copy_into(next=self._next, previous=self._previous)
        self.next_key = state.scalar("next_key")
        self._oldest_kept = state.scalar("oldest_kept")

    def hold(self) -> RowHold:
        """Takes hold of all rows as they are, for another thread to read; see `RowHold`.

        The ring remembers one hold; a new one takes the place of the one before.
        """
        row_bytes = sum(column.spec.row_bytes for column in self._columns.values())
        self._hold = RowHold(self.read, self.oldest_key(), self.next_key, row_bytes)
        return self._hold

    def let_go(self) -> None:
        """Forgets the hold: nothing more will be read from it."""
        self._hold = None

    def read(self, first_key: int, end_key: int) -> dict[str, AnyArray]:
        """Copies the rows from one key up to another, as arrays named `column` or `column/part`."""
        slots = np.arange(first_key, end_key) % self.capacity
        return {
            f"{name}/{part}" if part else name: array
            for name, column in self._columns.items()
            for part, array in column.read(slots).items()
        }

    def load_rows(self, first_key: int, columns: Mapping[str, AnyArray], skip: int = 0) -> None:
        """Puts back rows that `read` returned, but for the first `skip` of them.

        Raises:
          UnfitStateError: they do not fit the ring's columns.
        """
        for name, column in self._columns.items():
            parts = {"": columns[name]} if name in columns else State(columns).part(name).arrays
            column.restore((first_key + skip) % self.capacity, parts, skip)

    def _write(self, columns: Mapping[str, Values], count: int) -> None:
        if self._hold:
            self._hold.before_overwrite(self.next_key + count - self.capacity)
        start = self.next_key % self.capacity
        head = min(count, self.capacity - start)
        for name, column in self._columns.items():
            values = columns[name]
            if head == count:
                column.write(start, values)
            else:
                column.write(start, values[:head])
                column.write(0, values[head:])


def _make_column(spec: ColumnSpec, capacity: int) -> Column:
    if spec.codec is Codec.RAW:
        return DenseColumn(spec, capacity)
    return CompressedColumn(spec, capacity)
