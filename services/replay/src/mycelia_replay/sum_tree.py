"""A sum-tree: draws slots in proportion to their values, many at once.

Every node has `FAN_OUT` children, so a tree over a million slots is three flat
arrays, and drawing or refreshing is a few numpy calls per level instead of a
loop over items. Changes to leaves only mark their blocks; the sums above are
recomputed from the children before the next read. Nothing is updated by
differences, so rounding errors cannot build up.

    top       [ 9      |   5     ]      cumulated and searched as a whole
    leaves    [ 3 1 4 1|5 0 0 0  ]      block by block, FAN_OUT leaves each
"""

import numpy as np

from mycelia_replay.arrays import AnyArray, Bools, Floats, Ints
from mycelia_replay.state import State

FAN_OUT = 32
"""Measured for batches of 256: 16 to 64 differ little, a binary tree is slower."""

TOP_SIZE = 4096
"""Up to this size a level is searched as a whole."""


class SumTree:
    """Non-negative float64 values by slot, with their sum. One owner; not thread-safe."""

    def __init__(self, capacity: int) -> None:
        """Makes a tree of `capacity` slots, all of value 0."""
        if capacity < 1:
            raise ValueError(f"capacity must be at least 1, got {capacity}")
        self.capacity = capacity
        self._levels = [_blocks(capacity)]
        self._changed: list[Bools] = []
        while not self._changed or self._levels[-1].size > TOP_SIZE:
            parents = len(self._levels[-1])
            self._changed.append(np.zeros(parents, np.bool_))
            self._levels.append(_blocks(parents))
        self._leaves = self._levels[0].reshape(-1)
        self._stale = False
        self._cumulated = np.zeros(self._levels[-1].size)

    def __getitem__(self, slots: Ints) -> Floats:
        """Returns the values at `slots` [n]."""
        return self._leaves[slots]

    def set(self, slots: Ints, values: Floats | float) -> None:
        """Sets the values at `slots` [n], each finite and at least 0; the last one wins."""
        self._leaves[slots] = values
        self._changed[0][slots // FAN_OUT] = True
        self._stale = True

    @property
    def total(self) -> float:
        """The sum of all values."""
        self._refresh()
        return float(self._cumulated[-1])

    @property
    def nbytes(self) -> int:
        """Bytes reserved."""
        return sum(level.nbytes for level in self._levels)

    def state(self) -> State:
        """Copies the values; the sums follow from them."""
        return State.of({"leaves": self._leaves})

    def load_state(self, state: State) -> None:
        """Takes over what `state` returned.

        Raises:
          UnfitStateError: it is of a tree of another capacity.
        """
        state.copy_into(leaves=self._leaves)
        self._changed[0][:] = True
        self._stale = True

    def find(self, masses: Floats) -> Ints:
        """Returns, for each mass, the first slot whose cumulated sum is above it.

        Never returns a slot of value 0, whatever the rounding.

        Args:
          masses: [n], each in `[0, total)`; clamped to it.

        Raises:
          ValueError: the total is 0, so there is nothing to find.
        """
        total = self.total
        if total <= 0:
            raise ValueError("every value is 0: there is nothing to draw")
        nodes, masses = _descend_one(self._cumulated, np.minimum(masses, _below(total)))
        for level in reversed(self._levels[:-1]):
            children, masses = _descend(np.cumsum(level[nodes], axis=1), masses)
            nodes = nodes * FAN_OUT + children
        return nodes

    def draw(self, generator: np.random.Generator, count: int) -> Ints:
        """Draws `count` slots independently, each in proportion to its value."""
        return self.find(generator.random(count) * self.total)

    def _refresh(self) -> None:
        if not self._stale:
            return
        for height, changed in enumerate(self._changed):
            parents = changed.nonzero()[0]
            changed[parents] = False
            self._levels[height + 1].reshape(-1)[parents] = self._levels[height][parents].sum(1)
            if height + 1 < len(self._changed):
                self._changed[height + 1][parents // FAN_OUT] = True
        np.cumsum(self._levels[-1], out=self._cumulated)
        self._stale = False


def _blocks(size: int) -> Floats:
    return np.zeros((-(-size // FAN_OUT), FAN_OUT))


def _below(value: AnyArray | float) -> AnyArray:
    return np.nextafter(value, 0.0)


def _descend_one(cumulated: Floats, masses: Floats) -> tuple[Ints, Floats]:
    """Picks the node of the top level for each mass, and the mass left inside it."""
    nodes = np.searchsorted(cumulated, masses, side="right")
    before = np.where(nodes > 0, cumulated[nodes - 1], 0.0)
    return nodes, masses - before


def _descend(cumulated: Floats, masses: Floats) -> tuple[Ints, Floats]:
    """Picks a child for each mass, given the cumulated sums [n, FAN_OUT] of its block."""
    # A block's own sum may be rounded to less than what the level above took it
    # for. Below the last cumulated sum, the child picked has cumulated[child] >
    # mass >= cumulated[child - 1]: its value is not 0.
    masses = np.minimum(masses, _below(cumulated[:, -1]))
    children = (cumulated <= masses[:, None]).sum(1)
    before = cumulated[np.arange(len(children)), children - 1]
    return children, masses - np.where(children > 0, before, 0.0)
