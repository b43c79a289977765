"""Item columns: values kept once per item, at the row where the item starts.

A recurrent state is needed where an item's burn-in starts and nowhere else, so
most rows have none. Values lie in a pool of places; a slot of the ring knows
the place of its value.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from mycelia_core.config import WindowConfig
from mycelia_core.specs import ColumnSpec
from mycelia_replay.arrays import AnyArray, Bools, Ints
from mycelia_replay.columns.column import Allocate
from mycelia_replay.state import State

_NONE = -1
_FIRST_PLACES = 64


class ItemColumns:
    """Item columns by slot of the ring. The table owns it; not thread-safe."""

    def __init__(self, specs: Sequence[ColumnSpec], capacity: int, window: WindowConfig) -> None:
        """Prepares for slots in `[0, capacity)`; memory is taken as it is needed."""
        self._window = window
        self._place_of = np.full(capacity if specs else 0, _NONE, np.int32)
        self._values: dict[str, AnyArray] = {
            spec.name: np.empty((0, *spec.shape), spec.dtype) for spec in specs
        }
        self._free: list[int] = []
        self._place_count = 0

    def __bool__(self) -> bool:
        """Whether there are any such columns."""
        return bool(self._values)

    @property
    def nbytes(self) -> int:
        """Bytes reserved."""
        values = sum(array.nbytes for array in self._values.values())
        return self._place_of.nbytes + values + 32 * len(self._free)

    def starts(self, positions: Ints) -> Bools:
        """Tells of rows at `positions` [n] of their fragments where an item starts, burn-in too."""
        begins = (positions + self._window.burn_in_rows) % self._window.period == 0
        starts: Bools = (positions == 0) | begins
        return starts

    def store(self, slots: Ints, values: Mapping[str, AnyArray]) -> None:
        """Keeps values, each [n, ...], for distinct `slots` [n] that have none."""
        if not len(slots):
            return
        while len(self._free) < len(slots):
            self._grow()
        places = np.array(self._free[-len(slots) :], np.int32)
        del self._free[-len(slots) :]
        self._place_of[slots] = places
        for name, array in self._values.items():
            array[places] = values[name]

    def forget(self, slots: Ints) -> None:
        """Gives up the values of those among distinct `slots` [n] that have one."""
        if not self:
            return
        places = self._place_of[slots]
        self._free.extend(places[places != _NONE].tolist())
        self._place_of[slots] = _NONE

    def are_there(self, slots: Ints) -> Bools:
        """Tells which of `slots` [n] have values."""
        there: Bools = self._place_of[slots] != _NONE
        return there

    def gather(self, slots: Ints, allocate: Allocate = np.empty) -> dict[str, AnyArray]:
        """Returns copies of the values at `slots` [B], all of which have some: each [B, ...]."""
        gathered = {}
        for name, array in self._values.items():
            values = allocate((len(slots), *array.shape[1:]), array.dtype)
            array.take(self._place_of[slots], axis=0, out=values, mode="clip")
            gathered[name] = values
        return gathered

    def state(self) -> State:
        """Copies all that it holds."""
        slots = (self._place_of != _NONE).nonzero()[0]
        return State.of({"slots": slots}).joined(values=State(self.gather(slots)))

    def load_state(self, state: State) -> None:
        """Takes over what `state` returned; only while empty.

        Raises:
          UnfitStateError: it is of other columns.
        """
        values = state.part("values")
        self.store(state.array("slots"), {name: values.array(name) for name in self._values})

    def _grow(self) -> None:
        count = max(_FIRST_PLACES, self._place_count)
        for name, array in self._values.items():
            more = np.empty((count, *array.shape[1:]), array.dtype)
            self._values[name] = np.concatenate([array, more])
        # The last are used first, so that the lowest places fill up first.
        self._free[:0] = range(self._place_count + count - 1, self._place_count - 1, -1)
        self._place_count += count
