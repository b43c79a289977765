"""Rows that arrive: whose they are, and their columns."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mycelia_core.compression import CompressedRows
from mycelia_replay.arrays import Bools, Floats
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

    def flags(self, name: str) -> Bools:
        """Returns a bool column [rows]; such are never compressed."""
        values = self.columns[name]
        if isinstance(values, CompressedRows):
            raise TypeError(f"column {name!r} is compressed")
        return values
