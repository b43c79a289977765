"""A column of values of one size, in one array."""

from collections.abc import Mapping

import numpy as np

from mycelia_core.compression import CompressedRows
from mycelia_core.specs import ColumnSpec
from mycelia_replay.arrays import AnyArray, Ints
from mycelia_replay.columns.column import Allocate, Values
from mycelia_replay.state import State, UnfitStateError


class DenseColumn:
    """A `Column`. All memory is reserved at once; pages are touched as slots are filled."""

    def __init__(self, spec: ColumnSpec, capacity: int) -> None:
        """Reserves memory for `capacity` values."""
        self.spec = spec
        self._values: AnyArray = np.zeros((capacity, *spec.shape), spec.dtype)

    @property
    def nbytes(self) -> int:
        """Bytes reserved."""
        return self._values.nbytes

    def used_bytes(self, slot_count: int) -> int:
        """Returns how many of these are in use once the first `slot_count` slots are filled."""
        return self._values[:slot_count].nbytes

    def write(self, start: int, values: Values) -> None:
        """Sets the values of the slots from `start` on."""
        if isinstance(values, CompressedRows):
            raise TypeError(f"column {self.spec.name!r} is not compressed")
        self._values[start : start + len(values)] = values

    def gather(self, window: Ints, allocate: Allocate) -> AnyArray:
        """Returns copies [W, B, ...] of the values at `window` [W, B]."""
        out = allocate((*window.shape, *self.spec.shape), self.spec.dtype)
        self._values.take(window, axis=0, out=out, mode="clip")
        return out

    def read(self, slots: Ints) -> dict[str, AnyArray]:
        """Copies the values at `slots` [n]."""
        return {"": self._values.take(slots, axis=0)}

    def restore(self, start: int, arrays: Mapping[str, AnyArray], skip: int) -> int:
        """Sets the values from `start` on, wrapping round; see `Column.restore`."""
        values = State(arrays).array("")
        if (values.dtype, values.shape[1:]) != (self.spec.dtype, self.spec.shape):
            raise UnfitStateError(
                f"column {self.spec.name!r}: got {values.dtype} {list(values.shape[1:])}, "
                f"expected {self.spec}"
            )
        values = values[skip:]
        head = min(len(values), len(self._values) - start)
        self.write(start, values[:head])
        self.write(0, values[head:])
        return len(values)
