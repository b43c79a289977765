"""A line of items in order of arrival, of which the oldest or the newest are asked for."""

import numpy as np

from mycelia_replay.arrays import Bools, Ints
from mycelia_replay.state import State


class ArrivalLine:
    """Slots in order of arrival. Selectors own it; not thread-safe."""

    def __init__(self, capacity: int) -> None:
        """Prepares for slots in `[0, capacity)`."""
        # Slots in order of arrival between head and tail. An entry counts only
        # while its slot still holds the item that arrived then; removed ones
        # stay in place until they reach an end or the line is packed.
        self._line = np.zeros(2 * capacity, np.int64)
        self._arrivals = np.full(capacity, -1)
        self._head = 0
        self._tail = 0
        self._offset = 0
        self._count = 0

    def __len__(self) -> int:
        """How many items there are."""
        return self._count

    def append(self, slots: Ints) -> None:
        """Takes in the items at distinct `slots` [n], the oldest first."""
        if self._tail + len(slots) > len(self._line):
            self._pack()
        end = self._tail + len(slots)
        self._line[self._tail : end] = slots
        self._arrivals[slots] = np.arange(self._tail, end) + self._offset
        self._tail = end
        self._count += len(slots)

    def remove(self, slots: Ints) -> None:
        """Forgets the items at distinct `slots` [n]."""
        self._arrivals[slots] = -1
        self._count -= len(slots)

    def oldest(self, count: int) -> Ints:
        """Returns the `count` oldest, at least 1, the oldest first. Only if there are so many."""
        picked: list[Ints] = []
        position, missing = self._head, count
        while missing:
            entries = np.arange(position, min(position + 2 * missing, self._tail))
            alive = entries[self._is_alive(entries)][:missing]
            picked.append(self._line[alive])
            position, missing = int(entries[-1]) + 1, missing - len(alive)
        slots = np.concatenate(picked)
        self._head = int(self._arrivals[slots[0]]) - self._offset
        return slots

    def newest(self, count: int) -> Ints:
        """Returns the `count` newest, at least 1, the newest first. Only if there are so many."""
        picked: list[Ints] = []
        position, missing = self._tail, count
        while missing:
            entries = np.arange(max(self._head, position - 2 * missing), position)[::-1]
            alive = entries[self._is_alive(entries)][:missing]
            picked.append(self._line[alive])
            position, missing = int(entries[-1]), missing - len(alive)
        slots = np.concatenate(picked)
        self._tail = int(self._arrivals[slots[0]]) - self._offset + 1
        return slots

    def state(self) -> State:
        """Copies all that it holds."""
        return State.of(
            {"line": self._line, "arrivals": self._arrivals},
            head=self._head,
            tail=self._tail,
            offset=self._offset,
            count=self._count,
        )

    def load_state(self, state: State) -> None:
        """Takes over what `state` returned.

        Raises:
          UnfitStateError: it is of a line of another capacity.
        """
        state.copy_into(line=self._line, arrivals=self._arrivals)
        self._head, self._tail = state.scalar("head"), state.scalar("tail")
        self._offset, self._count = state.scalar("offset"), state.scalar("count")

    @property
    def nbytes(self) -> int:
        """Bytes reserved."""
        return self._line.nbytes + self._arrivals.nbytes

    def _is_alive(self, entries: Ints) -> Bools:
        alive: Bools = self._arrivals[self._line[entries]] == entries + self._offset
        return alive

    def _pack(self) -> None:
        entries = np.arange(self._head, self._tail)
        slots = self._line[entries[self._is_alive(entries)]]
        self._offset += self._tail
        self._head, self._tail = 0, len(slots)
        self._line[: self._tail] = slots
        self._arrivals[slots] = np.arange(self._tail) + self._offset
