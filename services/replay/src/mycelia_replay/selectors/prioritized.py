"""Picks items in proportion to priority^exponent.

Schaul et al. 2016, eq. 1 (https://arxiv.org/abs/1511.05952):

    P(i) = p_i^alpha / sum_k p_k^alpha
"""

import numpy as np

from mycelia_replay.arrays import Bools, Floats, Ints
from mycelia_replay.max_tree import MaxTree
from mycelia_replay.state import State
from mycelia_replay.sum_tree import SumTree

_LEAF_RANGE = (1e-200, 1e200)
"""Keeps the sum of any number of leaves finite, and a positive priority above 0."""


class Prioritized:
    """A `Selector`. Draws are independent of one another, with replacement."""

    def __init__(self, capacity: int, exponent: float) -> None:
        """Prepares for slots in `[0, capacity)`.

        Args:
          capacity: how many slots there are.
          exponent: alpha; 0 draws all items of priority above 0 alike.
        """
        self._exponent = exponent
        self._leaves = SumTree(capacity)
        self._priorities = MaxTree(capacity)

    def add(self, slots: Ints, priorities: Floats) -> None:
        """Takes new items in; see `Selector.add`."""
        unknown = np.isnan(priorities)
        if unknown.any():
            priorities = np.where(unknown, self.default_priority, priorities)
        self.update(slots, priorities)

    def update(self, slots: Ints, priorities: Floats) -> None:
        """Sets the priorities [n] of living items at `slots` [n]; the last one wins."""
        self._priorities.set(slots, priorities)
        with np.errstate(over="ignore", under="ignore"):  # the clip takes care of both
            leaves = np.clip(priorities**self._exponent, *_LEAF_RANGE)
        self._leaves.set(slots, np.where(priorities > 0, leaves, 0.0))

    def remove(self, slots: Ints) -> None:
        """Forgets the items at `slots` [n]."""
        self._priorities.set(slots, 0.0)
        self._leaves.set(slots, 0.0)

    def draw(self, generator: np.random.Generator, count: int) -> tuple[Ints, Floats]:
        """Draws `count` slots in proportion to their leaves."""
        slots = self._leaves.draw(generator, count)
        return slots, self._leaves[slots] / self._leaves.total

    def can_draw(self, count: int) -> bool:
        """Tells whether any priority is above 0."""
        return self._leaves.total > 0

    def drawable(self, slots: Ints) -> Bools:
        """Tells which of `slots` [n] have a priority above 0."""
        return self._leaves[slots] > 0

    @property
    def default_priority(self) -> float:
        """The largest priority among the items; 1 if there is none above 0."""
        return self._priorities.largest or 1.0

    @property
    def total(self) -> float:
        """The sum of priority^exponent."""
        return self._leaves.total

    def state(self) -> State:
        """Copies all that it holds."""
        return State().joined(leaves=self._leaves.state(), priorities=self._priorities.state())

    def load_state(self, state: State) -> None:
        """Takes over what `state` returned."""
        self._leaves.load_state(state.part("leaves"))
        self._priorities.load_state(state.part("priorities"))

    @property
    def nbytes(self) -> int:
        """Bytes reserved."""
        return self._leaves.nbytes + self._priorities.nbytes
