"""Picks every item with the same probability."""

import numpy as np

from mycelia_replay.arrays import Bools, Floats, Ints
from mycelia_replay.state import State
from mycelia_replay.sum_tree import SumTree


class Uniform:
    """A `Selector`. Priorities are ignored; draws are independent, with replacement."""

    def __init__(self, capacity: int) -> None:
        """Prepares for slots in `[0, capacity)`."""
        self._leaves = SumTree(capacity)

    def add(self, slots: Ints, priorities: Floats) -> None:
        """Takes new items in; see `Selector.add`."""
        self._leaves.set(slots, 1.0)

    def update(self, slots: Ints, priorities: Floats) -> None:
        """Changes nothing."""

    def remove(self, slots: Ints) -> None:
        """Forgets the items at `slots` [n]."""
        self._leaves.set(slots, 0.0)

    def draw(self, generator: np.random.Generator, count: int) -> tuple[Ints, Floats]:
        """Draws `count` slots, all items being equally likely."""
        slots = self._leaves.draw(generator, count)
        return slots, np.full(count, 1.0 / self._leaves.total)

    def can_draw(self, count: int) -> bool:
        """Tells whether there is any item."""
        return self._leaves.total > 0

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
        return self._leaves.total

    def state(self) -> State:
        """Copies all that it holds."""
        return self._leaves.state()

    def load_state(self, state: State) -> None:
        """Takes over what `state` returned."""
        self._leaves.load_state(state)

    @property
    def nbytes(self) -> int:
        """Bytes reserved."""
        return self._leaves.nbytes
