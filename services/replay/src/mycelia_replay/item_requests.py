"""The item columns of an insert request: their checks, before anything is touched."""

import numpy as np

from mycelia.replay.v1 import replay_pb2 as pb
from mycelia_core.codec import decode
from mycelia_core.rpc.errors import InvalidArgumentError
from mycelia_core.specs import ColumnSpec, Signature
from mycelia_replay.arrays import AnyArray, Bools, Ints

_NO_ROWS: Ints = np.empty(0, np.int64)


def parse_item_columns(
    request: pb.InsertRequest, signature: Signature, first: Bools
) -> tuple[Ints, dict[str, AnyArray]]:
    """Decodes which rows item columns are given for [k], and their values, each [k, ...].

    Args:
      request: what came.
      signature: the table's.
      first: [rows] of the request.

    Raises:
      InvalidArgumentError: they do not fit the signature or the rows, or the
        first row of an episode has none.
    """
    if not signature.item_columns:
        if request.item_columns:
            name = request.item_columns[0].name
            raise InvalidArgumentError(f"item column {name!r} is unknown; expected none")
        return _NO_ROWS, {}
    rows = _parse_rows(request, first)
    columns = {c.name: decode(c.values, name=c.name) for c in request.item_columns}
    unknown = sorted(columns.keys() - {spec.name for spec in signature.item_columns})
    if unknown or len(columns) != len(request.item_columns):
        raise InvalidArgumentError(
            f"item columns: got {unknown or 'one twice'}, expected each once"
        )
    for spec in signature.item_columns:
        _check_values(spec, columns.get(spec.name), len(rows))
    return rows, columns


def _parse_rows(request: pb.InsertRequest, first: Bools) -> Ints:
    rows = decode(request.item_rows, name="item_rows") if request.item_rows.shape else _NO_ROWS
    if rows.dtype != np.int64 or rows.ndim != 1:
        raise InvalidArgumentError(
            f"item_rows: got {rows.dtype} {list(rows.shape)}, expected int64 [k]"
        )
    if len(rows) and not (rows[0] >= 0 and rows[-1] < len(first) and (np.diff(rows) > 0).all()):
        raise InvalidArgumentError(f"item_rows: expected them ascending, in [0, {len(first)})")
    missing = np.setdiff1d(np.flatnonzero(first), rows)
    if len(missing):
        raise InvalidArgumentError(
            f"item_rows: row {missing[0]} is the first of an episode, so an item starts there, "
            "but it comes without item columns"
        )
    return rows


def _check_values(spec: ColumnSpec, values: AnyArray | None, count: int) -> None:
    if values is None:
        if count:
            raise InvalidArgumentError(f"item column {spec.name!r} is missing; expected {spec}")
    elif values.dtype != spec.dtype or values.shape != (count, *spec.shape):
        raise InvalidArgumentError(
            f"item column {spec.name!r}: got {values.dtype} {list(values.shape)}, "
            f"expected {spec.dtype} {[count, *spec.shape]}"
        )
