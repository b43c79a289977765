"""Picks the oldest items first; with `max_times_sampled=1` the table is a queue."""

import numpy as np

from mycelia_replay.arrays import Bools, Floats, Ints
from mycelia_replay.selectors.arrival_line import ArrivalLine
from mycelia_replay.state import State


class Fifo:
    """A `Selector`. A draw returns the oldest items, each once, and does not remove them."""

    def __init__(self, capacity: int) -> None:
        """Prepares for slots in `[0, capacity)`."""
        self._line = ArrivalLine(capacity)

    def add(self, slots: Ints, priorities: Floats) -> None:
        """Takes new items in, at the end of the line."""
        self._line.append(slots)

    def update(self, slots: Ints, priorities: Floats) -> None:
        """Changes nothing."""

    def remove(self, slots: Ints) -> None:
        """Forgets the items at distinct `slots` [n]."""
        self._line.remove(slots)

    def draw(self, generator: np.random.Generator, count: int) -> tuple[Ints, Floats]:
        """Returns the `count` oldest items, the oldest first; each was sure to be picked."""
        return self._line.oldest(count), np.ones(count)

    def can_draw(self, count: int) -> bool:
        """Tells whether there are `count` items."""
        return len(self._line) >= count

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
        return float(len(self._line))

    def state(self) -> State:
        """Copies all that it holds."""
        return self._line.state()

    def load_state(self, state: State) -> None:
        """Takes over what `state` returned."""
        self._line.load_state(state)

    @property
    def nbytes(self) -> int:
        """Bytes reserved."""
        return self._line.nbytes
