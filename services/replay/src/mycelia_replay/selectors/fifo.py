"""Picks the oldest items first; with `max_times_sampled=1` the table is a queue."""

import numpy as np

from mycelia_replay.arrays import Bools, Floats, Ints
from mycelia_replay.state import State


class Fifo:
    """A `Selector`. A draw returns the oldest items, each once, and does not remove them."""

    def __init__(self, capacity: int) -> None:
        """Prepares for slots in `[0, capacity)`."""
        self._capacity = capacity
        # Slots in order of arrival between head and tail. An entry counts only
        # while its slot still holds the item that arrived then; removed ones
        # stay in place until they reach the head or the line is packed.
        self._line = np.zeros(2 * capacity, np.int64)
        self._arrivals = np.full(capacity, -1)
        self._head = 0
        self._tail = 0
        self._offset = 0
        self._count = 0

    def add(self, slots: Ints, priorities: Floats) -> None:
        """Takes new items in, at the end of the line."""
        if self._tail + len(slots) > len(self._line):
            self._pack()
        end = self._tail + len(slots)
        self._line[self._tail : end] = slots
        self._arrivals[slots] = np.arange(self._tail, end) + self._offset
        self._tail = end
        self._count += len(slots)

    def update(self, slots: Ints, priorities: Floats) -> None:
        """Changes nothing."""

    def remove(self, slots: Ints) -> None:
        """Forgets the items at distinct `slots` [n]."""
        self._arrivals[slots] = -1
        self._count -= len(slots)

    def draw(self, generator: np.random.Generator, count: int) -> tuple[Ints, Floats]:
        """Returns the `count` oldest items; each was sure to be picked."""
        picked: list[Ints] = []
        position, missing = self._head, count
        while missing:
            entries = np.arange(position, min(position + 2 * missing, self._tail))
            alive = entries[self._is_alive(entries)][:missing]
            picked.append(self._line[alive])
            position, missing = int(entries[-1]) + 1, missing - len(alive)
        slots = np.concatenate(picked)
        self._head = int(self._arrivals[slots[0]]) - self._offset
        return slots, np.ones(count)

    def can_draw(self, count: int) -> bool:
        """Tells whether there are `count` items."""
        return self._count >= count

    def drawable(self, slots: Ints) -> Bools:
        """Any can."""
        return np.ones(len(slots), np.bool_)

    @property
    def default_priority(self) -> float:
        """1."""
        return 1.0

    @property
    def total(self) -> float:
        """How many items there are."""
        return float(self._count)

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
        """Takes over what `state` returned."""
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
