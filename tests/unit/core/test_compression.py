"""Rows compressed one by one, and what becomes of rows that are not what they claim."""

import struct
import tracemalloc

import lz4.block
import numpy as np
import pytest
import zstandard

from mycelia_core.compression import CompressedRows, check, compress, decompress, default_codec
from mycelia_core.rpc.errors import InvalidArgumentError
from mycelia_core.specs import Codec, ColumnSpec

CODECS = [Codec.LZ4, Codec.ZSTD]


def spec_of(codec: Codec, shape=(84, 84), dtype=np.uint8) -> ColumnSpec:
    return ColumnSpec("observation", np.dtype(dtype), shape, codec=codec)


def frames(count: int, *, noise: bool = False) -> np.ndarray:
    generator = np.random.default_rng(1)
    if noise:
        return generator.integers(0, 256, (count, 84, 84), np.uint8)
    values = np.zeros((count, 84, 84), np.uint8)
    values[np.arange(count), np.arange(count) % 84] = 200
    return values


def blob_of(codec: Codec, size: int) -> bytes:
    if codec is Codec.ZSTD:
        return zstandard.ZstdCompressor().compress(bytes(size))
    block = lz4.block.compress(bytes(size), store_size=False)
    return struct.pack("<I", len(block)) + block


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("noise", [False, True])
def test_rows_come_back_as_they_went(codec, noise):
    values = frames(400, noise=noise)

    rows = compress(spec_of(codec), values)

    check(rows)
    assert rows.shape == values.shape
    assert np.array_equal(decompress(rows), values)
    assert np.array_equal(decompress(rows[np.array([7, 3])]), values[[7, 3]])
    assert np.array_equal(decompress(rows[5:9]), values[5:9])


@pytest.mark.parametrize("codec", CODECS)
def test_one_row_may_go_to_many_places(codec):
    values = frames(300)
    index = np.random.default_rng(2).integers(0, 300, (5, 64)).astype(np.int32)

    assert np.array_equal(decompress(compress(spec_of(codec), values), index), values[index])


@pytest.mark.parametrize("codec", CODECS)
def test_other_types_and_scalars_are_compressed_too(codec):
    numbers = np.linspace(0, 1, 50)
    spec = spec_of(codec, (), np.float64)

    assert np.array_equal(decompress(compress(spec, numbers)), numbers)


def test_noise_costs_no_more_than_its_bytes_and_a_few():
    rows = compress(spec_of(Codec.LZ4), frames(10, noise=True))

    assert len(rows.data) == 10 * (84 * 84 + 4)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("size", [84 * 84 - 1, 84 * 84 + 1, 2_500_000])
def test_a_row_of_another_size_is_refused_by_both_ends(codec, size):
    blob = blob_of(codec, size)
    rows = CompressedRows.of(spec_of(codec), np.array([len(blob)], np.int32), blob)

    with pytest.raises(InvalidArgumentError, match="observation"):
        check(rows)
    with pytest.raises(InvalidArgumentError, match="observation"):
        decompress(rows)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("judge", [check, decompress])
def test_a_bomb_of_10_kb_takes_no_memory(codec, judge):
    size = 2_500_000 if codec is Codec.LZ4 else 300_000_000
    blob = blob_of(codec, size)
    assert len(blob) < 11_000
    rows = CompressedRows.of(spec_of(codec), np.array([len(blob)], np.int32), blob)

    tracemalloc.start()
    with pytest.raises(InvalidArgumentError):
        judge(rows)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert peak < 1_000_000


@pytest.mark.parametrize("codec", CODECS)
def test_garbage_is_refused(codec):
    rows = CompressedRows.of(spec_of(codec), np.array([9], np.int32), b"\xff" * 9)

    with pytest.raises(InvalidArgumentError, match="row 0"):
        check(rows)
    with pytest.raises(InvalidArgumentError):
        decompress(rows)


@pytest.mark.parametrize("lengths", [np.array([3, 0]), np.array([1.0]), np.array([4], np.int32)])
def test_lengths_that_are_not_those_of_the_data_are_refused(lengths):
    with pytest.raises(InvalidArgumentError, match="observation"):
        CompressedRows.of(spec_of(Codec.LZ4), lengths, b"abc")


def test_images_are_compressed_unless_told_otherwise():
    assert default_codec(np.dtype(np.uint8), (84, 84)) is Codec.LZ4
    assert default_codec(np.dtype(np.uint8), (3,)) is Codec.RAW
    assert default_codec(np.dtype(np.float32), (84, 84)) is Codec.RAW
