"""What the ring asks of a column."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from mycelia_core.compression import CompressedRows
from mycelia_core.specs import ColumnSpec
from mycelia_replay.arrays import AnyArray, Ints

Values = AnyArray | CompressedRows
"""Rows that arrive: `[n, ...]`."""

Allocate = Callable[[tuple[int, ...], np.dtype[Any]], AnyArray]
"""Makes an array for values to be gathered in: `np.empty`, or a place in shared memory."""


@dataclass(frozen=True, slots=True)
class CompressedWindows:
    """Windows of a compressed column: the distinct rows, and where each of them goes."""

    rows: CompressedRows
    """The n distinct rows."""

    index: NDArray[np.int32]
    """[W, B] which of them each place holds."""


Gathered = AnyArray | CompressedWindows
"""Windows of rows: `[W, B, ...]`."""


class Column(Protocol):
    """Keeps one value for each slot of a ring. The ring owns it; not thread-safe."""

    @property
    def spec(self) -> ColumnSpec:
        """What the values are."""

    @property
    def nbytes(self) -> int:
        """Bytes held."""

    def used_bytes(self, slot_count: int) -> int:
        """Returns how many of these are in use once the first `slot_count` slots are filled."""

    def write(self, start: int, values: Values) -> None:
        """Sets the values of the slots from `start` on."""

    def gather(self, window: Ints, allocate: Allocate) -> Gathered:
        """Returns copies of the values at the slots `window` [W, B]."""

    def read(self, slots: Ints) -> Mapping[str, AnyArray]:
        """Copies the values at `slots` [n] into named arrays, for a file each.

        Those of several calls are put together by concatenating them. The name
        of the only one is empty.
        """

    def restore(self, start: int, arrays: Mapping[str, AnyArray], skip: int) -> int:
        """Sets the values from slot `start` on, wrapping round, from arrays that `read` made.

        Args:
          start: a slot.
          arrays: as `read` made them.
          skip: how many of the first values to leave out.

        Returns:
          how many values were set.

        Raises:
          UnfitStateError: they are not of such a column.
        """
