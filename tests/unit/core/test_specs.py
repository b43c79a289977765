"""Signatures and the check of rows against them."""

import numpy as np
import pytest

from mycelia_core.rpc.errors import InvalidArgumentError
from mycelia_core.specs import REQUIRED_COLUMNS, ColumnSpec, Signature, check_rows

SIGNATURE = Signature.of(
    [
        ColumnSpec("observation", np.dtype(np.float32), (4,)),
        ColumnSpec("action", np.dtype(np.int64), (), category_count=2),
    ]
)


def rows(count=3, **changes):
    columns = {
        column.name: np.zeros((count, *column.shape), column.dtype) for column in SIGNATURE.columns
    }
    columns.update(changes)
    return {name: values for name, values in columns.items() if values is not None}


def test_a_signature_survives_the_wire():
    assert Signature.from_proto(SIGNATURE.to_proto()) == SIGNATURE


def test_rows_that_fit_are_counted():
    assert check_rows(SIGNATURE, rows(5)) == 5


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"image": np.zeros(3)}, "column 'image' is unknown"),
        ({"action": None}, "column 'action' is missing; expected int64"),
        (
            {"observation": np.zeros((3, 4), np.float64)},
            r"'observation': got float64 \[3, 4\], expected float32 \[rows, 4\]",
        ),
        (
            {"observation": np.zeros((3, 5), np.float32)},
            r"'observation': got float32 \[3, 5\], expected float32 \[rows, 4\]",
        ),
        ({"reward": np.zeros((), np.float32)}, "'reward'"),
        ({"action": np.zeros(2, np.int64)}, "'action': got 2 rows"),
    ],
)
def test_rows_that_do_not_fit_are_refused_with_what_came_and_what_was_expected(changes, message):
    with pytest.raises(InvalidArgumentError, match=message):
        check_rows(SIGNATURE, rows(**changes))


def test_a_signature_needs_reward_and_flags():
    with pytest.raises(InvalidArgumentError, match="'truncated'"):
        Signature(REQUIRED_COLUMNS[:3])


def test_a_name_that_comes_twice_is_refused():
    with pytest.raises(InvalidArgumentError, match="twice"):
        Signature((*SIGNATURE.columns, SIGNATURE.columns[0]))


def test_a_difference_names_the_column_and_both_forms():
    other = Signature.of([ColumnSpec("observation", np.dtype(np.uint8), (4,))])

    difference = SIGNATURE.difference(other)

    assert difference == "column 'observation': float32 [4] against uint8 [4]"
    assert SIGNATURE.difference(SIGNATURE) is None


def test_columns_are_found_by_prefix():
    nested = Signature.of(
        [ColumnSpec(name, np.dtype(np.float32)) for name in ("observation/a", "observations")]
    )

    assert [column.name for column in nested.starting_with("observation")] == ["observation/a"]
