"""Item columns on their way: kept for the rows at which items start."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mycelia.replay.v1 import replay_pb2 as pb
from mycelia_core.codec import encode
from mycelia_core.config import WindowConfig
from mycelia_core.rpc.errors import InvalidArgumentError
from mycelia_core.specs import ColumnSpec

Rows = NDArray[Any]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


class ItemBuffer:
    """Holds item columns beside the rows of a `RowBuffer`, which owns it."""

    def __init__(
        self,
        specs: Sequence[ColumnSpec],
        window: WindowConfig | None,
        capacity: int,
        stream_count: int,
    ) -> None:
        """Prepares for `capacity` rows.

        Args:
          specs: the item columns.
          window: the table's, which says where items start; None to keep every row's,
            of which the server drops what it does not need.
          capacity: how many rows are held at most.
          stream_count: how many streams there are.
        """
        self._specs = specs
        self._window = window
        self._columns = [np.empty((capacity, *s.shape), s.dtype) for s in specs]
        self._kept = np.zeros(capacity, np.bool_)
        self._positions = np.zeros(stream_count, np.int64)

    @property
    def row_bytes(self) -> int:
        """Bytes that a row may add to a request."""
        return sum(spec.row_bytes + 8 for spec in self._specs)

    def check(self, item_columns: Mapping[str, Rows], count: int) -> None:
        """Checks the values of `count` rows.

        Raises:
          InvalidArgumentError: a column is missing, unknown, or does not fit.
        """
        if len(item_columns) != len(self._specs):
            names = [spec.name for spec in self._specs]
            raise InvalidArgumentError(
                f"item_columns: got {sorted(item_columns)}, expected {names}"
            )
        for spec in self._specs:
            values = item_columns.get(spec.name)
            if values is None:
                raise InvalidArgumentError(f"item column {spec.name!r} is missing; expected {spec}")
            if values.dtype != spec.dtype or values.shape != (count, *spec.shape):
                raise InvalidArgumentError(
                    f"item column {spec.name!r}: got {values.dtype} {list(values.shape)}, "
                    f"expected {spec.dtype} {[count, *spec.shape]}"
                )

    def append(
        self, rows: slice, item_columns: Mapping[str, Rows], streams: Ints, first: Bools
    ) -> None:
        """Copies in what is needed of rows [n], of which `first` [n] begin an episode."""
        if not self._specs:
            return
        positions = np.where(first, 0, self._positions[streams])
        self._positions[streams] = positions + 1
        kept = self._starts(positions)
        self._kept[rows] = kept
        for spec, buffer in zip(self._specs, self._columns, strict=True):
            buffer[rows][kept] = item_columns[spec.name][kept]

    def keep(self, rows: Ints) -> None:
        """Forgets all rows but some [n], which move to the front."""
        for buffer in (*self._columns, self._kept):
            buffer[: len(rows)] = buffer[rows]

    def add_to(self, request: pb.InsertRequest, order: Ints) -> None:
        """Adds to a request what is held of its rows, `order` [n] of those held."""
        if not self._specs:
            return
        places = self._kept[order].nonzero()[0]
        request.item_rows.CopyFrom(encode(places))
        for spec, buffer in zip(self._specs, self._columns, strict=True):
            values = encode(buffer[order[places]], name=spec.name)
            request.item_columns.append(pb.ColumnData(name=spec.name, values=values))

    def _starts(self, positions: Ints) -> Bools:
        if self._window is None:
            return np.ones(len(positions), np.bool_)
        begins = (positions + self._window.burn_in_rows) % self._window.period == 0
        starts: Bools = (positions == 0) | begins
        return starts
