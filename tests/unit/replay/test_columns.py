"""Columns: what is written is gathered, and memory stays bounded."""

import numpy as np
import pytest

from mycelia_core.compression import compress, decompress
from mycelia_core.specs import Codec, ColumnSpec
from mycelia_replay.columns.compressed import SEGMENT_BYTES, CompressedColumn
from mycelia_replay.columns.dense import DenseColumn
from mycelia_replay.state import UnfitStateError

CAPACITY = 500
SPEC = ColumnSpec("observation", np.dtype(np.uint8), (64, 64), codec=Codec.LZ4)


def write_round(column, generator, start, count):
    """Writes values half noise, half flat, so that they differ in size."""
    values = generator.integers(0, 256, (count, 64, 64), np.uint8)
    values[generator.random(count) < 0.5] = 7
    head = min(count, CAPACITY - start)
    rows = compress(SPEC, values)
    column.write(start, rows[:head])
    if head < count:
        column.write(0, rows[head:])
    return values


def test_a_compressed_column_holds_what_an_array_would():
    generator = np.random.default_rng(1)
    column, model = CompressedColumn(SPEC, CAPACITY), np.zeros((CAPACITY, 64, 64), np.uint8)
    start = 0
    for _ in range(60):
        count = int(generator.integers(1, 120))
        slots = (start + np.arange(count)) % CAPACITY
        model[slots] = write_round(column, generator, start, count)
        start = (start + count) % CAPACITY
        window = generator.integers(0, min(CAPACITY, start or 1), (3, 8))

        gathered = column.gather(window, np.empty)

        assert np.array_equal(decompress(gathered.rows, gathered.index), model[window])
    assert len(gathered.rows) == len(np.unique(window))


def test_a_compressed_columns_memory_is_that_of_what_it_holds():
    generator = np.random.default_rng(1)
    column = CompressedColumn(SPEC, CAPACITY)
    start, sizes = 0, []
    for _ in range(200):
        write_round(column, generator, start, 100)
        start = (start + 100) % CAPACITY
        sizes.append(column.nbytes)

    held = int(column.read(np.arange(CAPACITY))["lengths"].sum())
    assert max(sizes[10:]) <= held * 1.2 + 4 * SEGMENT_BYTES
    assert max(sizes[100:]) <= max(sizes[10:100]) + SEGMENT_BYTES


@pytest.mark.parametrize("kind", [CompressedColumn, DenseColumn])
def test_a_column_is_restored_from_what_was_read(kind):
    spec = SPEC if kind is CompressedColumn else ColumnSpec("observation", SPEC.dtype, SPEC.shape)
    values = np.random.default_rng(1).integers(0, 256, (20, 64, 64), np.uint8)
    column, again = kind(spec, CAPACITY), kind(spec, CAPACITY)
    column.write(0, compress(spec, values) if kind is CompressedColumn else values)

    count = again.restore(CAPACITY - 5, column.read(np.arange(20)), 2)

    assert count == 18
    slots = (CAPACITY - 5 + np.arange(18)) % CAPACITY
    gathered = again.gather(slots[None], np.empty)
    if kind is CompressedColumn:
        gathered = decompress(gathered.rows, gathered.index)
    assert np.array_equal(gathered[0], values[2:])


@pytest.mark.parametrize("kind", [CompressedColumn, DenseColumn])
def test_what_is_not_of_the_column_is_not_restored(kind):
    with pytest.raises(UnfitStateError):
        kind(SPEC, CAPACITY).restore(0, {"": np.zeros(3)}, 0)
