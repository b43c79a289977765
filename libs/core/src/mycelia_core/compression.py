"""Compression of rows, one by one, so that any can be read without its neighbours.

Images are mostly flat areas and shrink to a few hundredths, and LZ4 reads them
back at several GB/s; `docs/compression.md` has the figures. The wire format of each
codec is written at `Codec` in signature.proto. LZ4 rows are data blocks of an
LZ4 frame, so that many rows with a frame's header before them and its end mark
after them are inflated by one call, outside the GIL.
"""

import math
import os
import struct
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

import lz4.block
import lz4.frame
import numpy as np
import zstandard
from numpy.typing import NDArray

from mycelia.experience.v1 import signature_pb2
from mycelia_core.codec import decode, encode
from mycelia_core.rpc.errors import InvalidArgumentError
from mycelia_core.specs import Codec, ColumnSpec

ZSTD_LEVEL = 1
"""Measured on Atari frames: level 3 saves 2 % more bytes than 1."""

GROUP_BYTES = 1024 * 1024
"""How much is inflated by one call: what stays in the cache until it is copied on."""

THREADS = max(1, min(4, (os.cpu_count() or 1) // 2))
"""How many groups are inflated at a time. On 2 cores a second thread gains nothing."""

_STORED = 1 << 31
"""The bit of a size word that says that the row is not compressed."""

_END_MARK = b"\0\0\0\0"

_SIZE_WORD = struct.Struct("<I")


@dataclass(frozen=True)
class CompressedRows:
    """n rows of one column, each compressed by itself. Looks like an array `[n, ...]` to checks."""

    spec: ColumnSpec
    lengths: NDArray[np.int32]
    """[n] bytes of each row."""
    data: bytes | memoryview
    """The rows' bytes, one after another."""

    def __len__(self) -> int:
        """How many rows."""
        return len(self.lengths)

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of the rows' elements."""
        return self.spec.dtype

    @property
    def ndim(self) -> int:
        """How many axes the rows have together."""
        return 1 + len(self.spec.shape)

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the rows together."""
        return (len(self), *self.spec.shape)

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return len(self.data) + self.lengths.nbytes

    @property
    def ends(self) -> NDArray[np.int64]:
        """[n] where in `data` each row ends."""
        return np.cumsum(self.lengths, dtype=np.int64)

    def __getitem__(self, rows: slice | NDArray[np.int64]) -> "CompressedRows":
        """Returns some of the rows: a slice of step 1, or indices [m]."""
        ends, view = self.ends, memoryview(self.data)
        starts = ends - self.lengths
        if isinstance(rows, slice):
            first, last, _ = rows.indices(len(self))
            begin, end = (int(starts[first]), int(ends[last - 1])) if last > first else (0, 0)
            return CompressedRows(self.spec, self.lengths[rows], view[begin:end])
        pieces = zip(starts[rows].tolist(), ends[rows].tolist(), strict=True)
        data = b"".join([view[begin:end] for begin, end in pieces])
        return CompressedRows(self.spec, self.lengths[rows], data)

    def to_proto(self) -> signature_pb2.CompressedRows:
        """Encodes the rows."""
        return signature_pb2.CompressedRows(lengths=encode(self.lengths), data=bytes(self.data))

    @classmethod
    def from_proto(
        cls,
        message: signature_pb2.CompressedRows,
        spec: ColumnSpec,
        data: bytes | memoryview | None = None,
    ) -> "CompressedRows":
        """Decodes rows; `check` or `decompress` looks at the bytes themselves.

        Args:
          message: as it came.
          spec: of the column.
          data: the rows' bytes, if they were kept apart from the message.

        Raises:
          InvalidArgumentError: the lengths are malformed or not those of the data.
        """
        lengths = decode(message.lengths, name=f"column {spec.name!r}: lengths")
        return cls.of(spec, lengths, message.data if data is None else data)

    @classmethod
    def of(
        cls, spec: ColumnSpec, lengths: NDArray[Any], data: bytes | memoryview
    ) -> "CompressedRows":
        """Makes rows of what came from outside.

        Raises:
          InvalidArgumentError: the lengths are malformed or not those of the data.
        """
        if lengths.dtype != np.int32 or lengths.ndim != 1 or (lengths < 1).any():
            raise InvalidArgumentError(
                f"column {spec.name!r}: lengths must be int32 [rows], each at least 1, "
                f"got {lengths.dtype} {list(lengths.shape)}"
            )
        total = int(lengths.sum(dtype=np.int64))
        if total != len(data):
            raise InvalidArgumentError(
                f"column {spec.name!r}: the lengths sum up to {total}, got {len(data)} bytes"
            )
        return cls(spec, lengths, data)


def default_codec(dtype: np.dtype[Any], shape: tuple[int, ...]) -> Codec:
    """Returns the codec that pays for a column: LZ4 for images, none for all else."""
    is_image = dtype == np.uint8 and len(shape) >= 2 and int(np.prod(shape)) >= 1024
    return Codec.LZ4 if is_image else Codec.RAW


def compress(spec: ColumnSpec, rows: NDArray[Any]) -> CompressedRows:
    """Compresses `rows` [n, ...] of a column with its codec, each by itself."""
    flat = np.ascontiguousarray(rows).reshape(len(rows), -1).view(np.uint8)
    pieces = list(map(_compress_lz4 if spec.codec is Codec.LZ4 else _compress_zstd, flat))
    lengths = np.array([len(piece) for piece in pieces], np.int32)
    return CompressedRows(spec, lengths, b"".join(pieces))


def check(rows: CompressedRows) -> None:
    """Makes sure that each row inflates to exactly its shape, in no more memory than one row has.

    Zstandard rows are judged by the size that their header gives; reading them
    checks it. LZ4 has no such header, but inflates a frame of 7 KB in 1 us.

    Raises:
      InvalidArgumentError: one does not.
    """
    size = rows.spec.row_bytes
    inflated_size = _lz4_size if rows.spec.codec is Codec.LZ4 else _zstd_size
    for i, blob in enumerate(_blobs(rows)):
        try:
            got = inflated_size(blob, size)
        except (lz4.block.LZ4BlockError, zstandard.ZstdError, ValueError) as error:
            raise _refusal(rows.spec, i, str(error)) from error
        if got != size:
            raise _refusal(rows.spec, i, f"inflates to {got} bytes")


def decompress(rows: CompressedRows, index: NDArray[np.int32] | None = None) -> NDArray[Any]:
    """Inflates rows to an array, group by group outside the GIL; memory is bounded by its size.

    Args:
      rows: n of them.
      index: [...] which of the rows each place of the result holds; None for
        each in turn.

    Returns:
      [..., *row's shape]

    Raises:
      InvalidArgumentError: rows do not inflate to their shape.
    """
    spec = rows.spec
    shape = (len(rows),) if index is None else index.shape
    out = np.empty((math.prod(shape), spec.row_bytes), np.uint8)
    places = None if index is None else _Places(index, len(rows))
    ends, view = rows.ends, memoryview(rows.data)
    inflate = _inflate_lz4 if spec.codec is Codec.LZ4 else _inflate_zstd

    def fill(begin: int, end: int) -> None:
        data = view[int(ends[begin] - rows.lengths[begin]) : int(ends[end - 1])]
        inflated = inflate(CompressedRows(spec, rows.lengths[begin:end], data))
        if places is None:
            out[begin:end] = inflated
        else:
            where, which = places.of(begin, end)
            out[where] = inflated if len(which) == len(inflated) else inflated[which]

    step = max(1, GROUP_BYTES // max(1, spec.row_bytes))
    begins = range(0, len(rows), step)
    ends_of_groups = [min(begin + step, len(rows)) for begin in begins]
    if THREADS > 1 and len(begins) > 2:
        list(_pool().map(fill, begins, ends_of_groups))
    else:
        for begin, end in zip(begins, ends_of_groups, strict=True):
            fill(begin, end)
    return out.view(spec.dtype).reshape(*shape, *spec.shape)


class _Places:
    """Finds the places that a run of rows goes to."""

    def __init__(self, index: NDArray[np.int32], row_count: int) -> None:
        flat = index.reshape(-1)
        self._order = np.argsort(flat, kind="stable")
        self._which = flat[self._order]
        self._starts = np.searchsorted(self._which, np.arange(row_count + 1))

    def of(self, begin: int, end: int) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """Returns the places [m] of rows `[begin, end)`, and which of these each place holds."""
        some = slice(self._starts[begin], self._starts[end])
        return self._order[some], self._which[some] - np.int32(begin)


def _compress_lz4(row: NDArray[np.uint8]) -> bytes:
    block: bytes = lz4.block.compress(row, store_size=False)
    if len(block) < len(row):
        return _SIZE_WORD.pack(len(block)) + block
    return _SIZE_WORD.pack(len(row) | _STORED) + row.tobytes()


def _compress_zstd(row: NDArray[np.uint8]) -> bytes:
    return _contexts().compressor.compress(row.data)


def _lz4_size(blob: memoryview, limit: int) -> int:
    word = _SIZE_WORD.unpack_from(blob)[0] if len(blob) > _SIZE_WORD.size else 0
    if word & ~_STORED != len(blob) - _SIZE_WORD.size:
        raise ValueError(f"its size word says {word & ~_STORED} of {len(blob)} bytes")
    if word & _STORED:
        return len(blob) - _SIZE_WORD.size
    return len(lz4.block.decompress(blob[_SIZE_WORD.size :], uncompressed_size=limit))


def _zstd_size(blob: memoryview, limit: int) -> int:
    return zstandard.frame_content_size(blob)


def _inflate_lz4(rows: CompressedRows) -> NDArray[np.uint8]:
    total = len(rows) * rows.spec.row_bytes
    frame = b"".join([_lz4_header(total, rows.spec.row_bytes), rows.data, _END_MARK])
    try:
        # The header holds the total: a frame that inflates to more is refused when it gets there.
        inflated = lz4.frame.decompress(frame, return_bytearray=True)
    except RuntimeError as error:
        raise InvalidArgumentError(f"column {rows.spec.name!r}: {error}") from error
    if len(inflated) != total:
        raise InvalidArgumentError(
            f"column {rows.spec.name!r}: {len(rows)} rows inflate to {len(inflated)} bytes, "
            f"expected {total}"
        )
    return np.frombuffer(inflated, np.uint8).reshape(len(rows), -1)


def _inflate_zstd(rows: CompressedRows) -> NDArray[np.uint8]:
    size = rows.spec.row_bytes
    check(rows)
    sizes = np.full(len(rows), size, "<u8").tobytes()
    segments = np.stack([rows.ends - rows.lengths, rows.lengths], axis=1).astype("<u8").tobytes()
    source = zstandard.BufferWithSegments(bytes(rows.data), segments)
    try:
        inflated = _contexts().decompressor.multi_decompress_to_buffer(
            source, decompressed_sizes=sizes
        )
    except zstandard.ZstdError as error:
        raise InvalidArgumentError(f"column {rows.spec.name!r}: {error}") from error
    flat = np.concatenate(
        [np.frombuffer(inflated[i].tobytes(), np.uint8) for i in range(len(inflated))]
    )
    return flat.reshape(len(rows), size)


@lru_cache(4096)
def _lz4_header(total: int, row_bytes: int) -> bytes:
    sizes = (64 << 10, 256 << 10, 1 << 20, 4 << 20)
    block_size = next(4 + i for i, size in enumerate(sizes) if row_bytes <= size)
    header: bytes = lz4.frame.compress_begin(
        lz4.frame.create_compression_context(),
        source_size=total,
        block_size=block_size,
        block_linked=False,
    )
    return header


def _blobs(rows: CompressedRows) -> Iterator[memoryview]:
    view = memoryview(rows.data)
    begin = 0
    for end in rows.ends.tolist():
        yield view[begin:end]
        begin = end


def _refusal(spec: ColumnSpec, row: int, problem: str) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"column {spec.name!r}, row {row}: {problem}, expected {spec.codec.name.lower()} of "
        f"{spec.row_bytes} bytes for {spec}"
    )


class _Contexts(threading.local):
    """Zstandard's contexts; a thread may not share them."""

    def __init__(self) -> None:
        self.compressor = zstandard.ZstdCompressor(level=ZSTD_LEVEL)
        self.decompressor = zstandard.ZstdDecompressor()


@cache
def _contexts() -> _Contexts:
    return _Contexts()


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(THREADS, thread_name_prefix="decompress")
