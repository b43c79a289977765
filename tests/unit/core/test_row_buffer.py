"""Rows of a dropped fragment leave the buffer, and their stream's numbering says so."""

import numpy as np
import pytest

from mycelia_core.clients.row_buffer import RowBuffer
from mycelia_core.codec import decode
from mycelia_core.specs import ColumnSpec, Signature

SIGNATURE = Signature.of([ColumnSpec("observation", np.dtype(np.int64))])


@pytest.fixture
def buffer():
    return RowBuffer(SIGNATURE, ["a", "b"], 8)


def append(buffer, value, first, streams=(0, 1)):
    count = len(streams)
    flag = np.zeros(count, np.bool_)
    columns = {
        "observation": np.full(count, value),
        "reward": np.zeros(count, np.float32),
        "first": np.full(count, first),
        "terminated": flag,
        "truncated": flag,
    }
    buffer.append(columns, np.array(streams))


def taken(buffer):
    found = {}
    for insert in buffer.take("run", "train"):
        request = insert.head
        values = decode(request.columns[0].values).tolist()
        for segment in request.segments:
            rows, values = values[: segment.row_count], values[segment.row_count :]
            found[segment.stream_id] = (segment.start_row, rows)
    return found


def test_a_fragment_that_is_held_whole_leaves_no_trace(buffer):
    append(buffer, 1, True)
    append(buffer, 2, True, streams=[0])
    append(buffer, 3, False, streams=[0])

    buffer.drop(0)
    append(buffer, 4, True)

    assert taken(buffer) == {"a": (0, [1, 4]), "b": (0, [1, 4])}


def test_a_fragment_that_was_sent_in_part_leaves_a_gap(buffer):
    append(buffer, 1, True)
    taken(buffer)
    append(buffer, 2, False)

    buffer.drop(0)
    append(buffer, 3, True, streams=[0])

    assert taken(buffer) == {"a": (2, [3]), "b": (1, [2])}
    assert not buffer.is_full
