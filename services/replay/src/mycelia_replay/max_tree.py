"""A max-tree of two levels: the largest of many values, cheap to keep."""

import numpy as np

from mycelia_replay.arrays import Floats, Ints
from mycelia_replay.state import State

FAN_OUT = 64


class MaxTree:
    """Non-negative float64 values by slot, with their maximum. One owner; not thread-safe.

    As in the sum-tree, a change marks its block, and the marked blocks are
    recomputed when the maximum is asked for.
    """

    def __init__(self, capacity: int) -> None:
        """Makes a tree of `capacity` slots, all of value 0."""
        self._blocks = np.zeros((-(-capacity // FAN_OUT), FAN_OUT))
        self._values = self._blocks.reshape(-1)
        self._largest = np.zeros(len(self._blocks))
        self._changed = np.zeros(len(self._blocks), np.bool_)

    def __getitem__(self, slots: Ints) -> Floats:
        """Returns the values at `slots` [n]."""
        return self._values[slots]

    def at(self, slot: int) -> float:
        """Returns the value at one slot."""
        return float(self._values[slot])

    def set(self, slots: Ints, values: Floats | float) -> None:
        """Sets the values at `slots` [n]; the last one wins."""
        self._values[slots] = values
        self._changed[slots // FAN_OUT] = True

    @property
    def largest(self) -> float:
        """The largest value."""
        blocks = self._changed.nonzero()[0]
        self._changed[blocks] = False
        self._largest[blocks] = self._blocks[blocks].max(axis=1)
        return float(self._largest.max())

    def state(self) -> State:
        """Copies the values; the maximum follows from them."""
        return State.of({"values": self._values})

    def load_state(self, state: State) -> None:
        """Takes over what `state` returned.

        Raises:
          UnfitStateError: it is of a tree of another capacity.
        """
        state.copy_into(values=self._values)
        self._changed[:] = True

    @property
    def nbytes(self) -> int:
        """Bytes reserved."""
        return self._blocks.nbytes + self._largest.nbytes + self._changed.nbytes
