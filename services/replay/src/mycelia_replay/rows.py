"""Rows that arrive: whose they are, and their columns."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from mycelia_core.compression import CompressedRows
from mycelia_replay.arrays import AnyArray, Bools, Floats, Ints
from mycelia_replay.columns.column import Values


@dataclass(frozen=True, slots=True)
class Segment:
    """Consecutive rows of one stream; see `Segment` in replay.proto."""

    stream_id: str
    start_row: int
    row_count: int


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows that have been checked by themselves, but not yet against their streams."""

    segments: Sequence[Segment]
    """No stream comes twice."""

    columns: Mapping[str, Values]
    """Each [rows, ...], the segments' rows one after another."""

    priorities: Floats | None
    """[rows] of the item that begins at each row, or None."""

    row_count: int
    """The sum over the segments."""

    item_rows: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    """[k] for which of the rows item columns are given, ascending."""

    item_columns: Mapping[str, AnyArray] = field(default_factory=dict)
    """Each [k, ...]."""

    def flags(self, name: str) -> Bools:
        """Returns a bool column [rows]; such are never compressed."""
        values = self.columns[name]
        if isinstance(values, CompressedRows):
            raise TypeError(f"column {name!r} is compressed")
        return values
