"""Picks the items of the highest priority, or of the lowest."""

import heapq

import numpy as np

from mycelia_replay.arrays import Bools, Floats, Ints
from mycelia_replay.max_tree import MaxTree
from mycelia_replay.state import State

Entry = tuple[float, int, int]
"""The priority (negative if the highest comes first), the arrival and the slot of an item."""


class Heap:
    """A `Selector`. A draw returns the first items, each once, and does not remove them.

    Among items of equal priority the older one comes first. As a sampler it
    is a max-heap, as a remover a min-heap.
    """

    def __init__(self, capacity: int, *, highest_first: bool) -> None:
        """Prepares for slots in `[0, capacity)`."""
        self._sign = -1.0 if highest_first else 1.0
        self._tree = MaxTree(capacity)
        self._arrivals = np.full(capacity, -1)
        self._next_arrival = 0
        self._count = 0
        # An entry counts only while its item is there and has that priority.
        self._entries: list[Entry] = []

    def add(self, slots: Ints, priorities: Floats) -> None:
        """Takes new items in; see `Selector.add`."""
        unknown = np.isnan(priorities)
        if unknown.any():
            priorities = np.where(unknown, self.default_priority, priorities)
        self._arrivals[slots] = np.arange(self._next_arrival, self._next_arrival + len(slots))
        self._next_arrival += len(slots)
        self._count += len(slots)
        self.update(slots, priorities)

    def update(self, slots: Ints, priorities: Floats) -> None:
        """Sets the priorities [n] of living items at `slots` [n]; the last one wins."""
        self._tree.set(slots, priorities)
        if len(self._entries) + len(slots) > 64 + 4 * self._count:
            self._rebuild()
            return
        for entry in self._current_entries(slots):
            heapq.heappush(self._entries, entry)

    def remove(self, slots: Ints) -> None:
        """Forgets the items at distinct `slots` [n]."""
        self._arrivals[slots] = -1
        self._tree.set(slots, 0.0)
        self._count -= len(slots)

    def draw(self, generator: np.random.Generator, count: int) -> tuple[Ints, Floats]:
        """Returns the first `count` items in order; each was sure to be picked."""
        drawn: list[Entry] = []
        while len(drawn) < count:
            entry = heapq.heappop(self._entries)
            # An item may have several equal entries; they come one after another.
            if self._is_current(entry) and not (drawn and drawn[-1] == entry):
                drawn.append(entry)
        for entry in drawn:
            heapq.heappush(self._entries, entry)
        return np.array([slot for _, _, slot in drawn], np.int64), np.ones(count)

    def can_draw(self, count: int) -> bool:
        """Tells whether there are `count` items."""
        return self._count >= count

    def drawable(self, slots: Ints) -> Bools:
        """Any can."""
        return np.ones(len(slots), np.bool_)

    @property
    def default_priority(self) -> float:
        """The largest priority among the items; 1 if there is none above 0."""
        return self._tree.largest or 1.0

    @property
    def total(self) -> float:
        """How many items there are."""
        return float(self._count)

    def state(self) -> State:
        """Copies priorities and arrivals; the order follows from them."""
        return State.of({"arrivals": self._arrivals}, next_arrival=self._next_arrival).joined(
            priorities=self._tree.state()
        )

    def load_state(self, state: State) -> None:
        """Takes over what `state` returned."""
        state.copy_into(arrivals=self._arrivals)
        self._next_arrival = state.scalar("next_arrival")
        self._tree.load_state(state.part("priorities"))
        self._count = int(np.count_nonzero(self._arrivals >= 0))
        self._rebuild()

    @property
    def nbytes(self) -> int:
        """Bytes reserved, about."""
        return self._tree.nbytes + self._arrivals.nbytes + 128 * len(self._entries)

    def _current_entries(self, slots: Ints) -> list[Entry]:
        keys = (self._sign * self._tree[slots]).tolist()
        return list(zip(keys, self._arrivals[slots].tolist(), slots.tolist(), strict=True))

    def _is_current(self, entry: Entry) -> bool:
        key, arrival, slot = entry
        return bool(self._arrivals[slot] == arrival and self._sign * self._tree.at(slot) == key)

    def _rebuild(self) -> None:
        self._entries = self._current_entries((self._arrivals >= 0).nonzero()[0])
        heapq.heapify(self._entries)
