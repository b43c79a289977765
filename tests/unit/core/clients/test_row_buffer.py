"""How rows are put together into requests."""

import numpy as np
import pytest

from mycelia_core.clients.row_buffer import RowBuffer
from mycelia_core.codec import decode
from mycelia_core.rpc import insert_wire
from mycelia_core.rpc.errors import InvalidArgumentError
from mycelia_core.specs import ColumnSpec, Signature


def rows_of(signature: Signature, count: int, value: int) -> dict[str, np.ndarray]:
    return {s.name: np.full((count, *s.shape), value, s.dtype) for s in signature.columns}


def test_rows_are_grouped_by_stream_and_numbered_on():
    signature = Signature.of([ColumnSpec("observation", np.dtype(np.int64))])
    buffer = RowBuffer(signature, ["a", "b"], chunk_rows=3)
    buffer.append(rows_of(signature, 2, 1))
    buffer.append(rows_of(signature, 1, 2), np.array([1]))
    assert not buffer.is_full
    buffer.append(rows_of(signature, 2, 3))
    assert buffer.is_full

    (request,) = (insert.head for insert in buffer.take("run", "train"))

    segments = [(s.stream_id, s.start_row, s.row_count) for s in request.segments]
    observations = next(c.values for c in request.columns if c.name == "observation")
    assert segments == [("a", 0, 2), ("b", 0, 3)]
    assert decode(observations).tolist() == [1, 3, 1, 2, 3]
    assert not request.HasField("priorities")
    assert len(buffer) == 0
    buffer.append(rows_of(signature, 1, 4), np.array([1]))
    (request,) = (insert.head for insert in buffer.take("run", "train"))
    assert [(s.stream_id, s.start_row) for s in request.segments] == [("b", 3)]


def test_large_rows_are_spread_over_requests_within_the_size_limit():
    signature = Signature.of([ColumnSpec("observation", np.dtype(np.uint8), (300, 1000))])
    buffer = RowBuffer(signature, ["a", "b"], chunk_rows=5)
    for value in range(5):
        buffer.append(rows_of(signature, 2, value))

    inserts = list(buffer.take("run", "train"))

    assert max(len(insert_wire.write(insert)) for insert in inserts) < 2 * 1024 * 1024
    segments = [(s.stream_id, s.start_row, s.row_count) for i in inserts for s in i.head.segments]
    assert sum(count for _, _, count in segments) == 10
    for name in "ab":
        rows = [row for s, start, n in segments if s == name for row in range(start, start + n)]
        assert rows == list(range(5))


def test_a_row_that_fits_no_message_is_refused_at_once():
    signature = Signature.of([ColumnSpec("observation", np.dtype(np.uint8), (3000, 1000))])

    with pytest.raises(InvalidArgumentError, match=r"a row has 30000\d\d bytes, expected at most"):
        RowBuffer(signature, ["a"], chunk_rows=1)


def test_streams_must_have_different_names():
    with pytest.raises(InvalidArgumentError, match="stream_ids: expected different names"):
        RowBuffer(Signature.of([]), ["a", "a"], chunk_rows=1)


def test_known_priorities_are_sent_and_unknown_ones_take_the_largest():
    signature = Signature.of([])
    buffer = RowBuffer(signature, ["a", "b"], chunk_rows=9)
    buffer.append(rows_of(signature, 2, 0), priorities=np.array([2.0, np.nan]))
    buffer.append(rows_of(signature, 1, 0), np.array([0]), np.array([0.5]))

    (request,) = (insert.head for insert in buffer.take("run", "train"))

    assert decode(request.priorities).tolist() == [2.0, 0.5, 2.0]
