"""Requests: the checks that need no table, before anything is touched.

Every error names the field, what came and what was expected.
"""

from dataclasses import replace

import numpy as np

from mycelia.experience.v1 import tensor_pb2
from mycelia.replay.v1 import replay_pb2 as pb
from mycelia_core.codec import decode
from mycelia_core.compression import CompressedRows, check
from mycelia_core.rpc.errors import InvalidArgumentError
from mycelia_core.rpc.insert_wire import Insert
from mycelia_core.specs import FIRST, Codec, Signature, check_rows
from mycelia_replay.arrays import AnyArray, Floats, Ints
from mycelia_replay.columns.column import Values
from mycelia_replay.item_requests import parse_item_columns
from mycelia_replay.rate_limiter import Elsewhere
from mycelia_replay.rows import Rows, Segment

MAX_STREAM_ID_LENGTH = 200
MAX_ROW = 2**62


def parse_insert(insert: Insert, signature: Signature) -> Rows:
    """Checks and decodes the rows of an insert; the arrays are views of the request's bytes.

    Raises:
      InvalidArgumentError: something is wrong whatever the table holds.
    """
    request = insert.head
    segments, expected = _parse_segments(request)
    columns: dict[str, Values] = {}
    for column in request.columns:
        if column.name in columns:
            raise InvalidArgumentError(f"column {column.name!r} comes twice, expected it once")
        columns[column.name] = _parse_values(column, insert.data.get(column.name), signature)
    row_count = check_rows(signature, columns)
    if row_count != expected:
        raise InvalidArgumentError(
            f"segments: their row_count sums up to {expected}, "
            f"expected {row_count}, the number of rows in the columns"
        )
    priorities = None
    if request.HasField("priorities"):
        priorities = parse_priorities(request.priorities, row_count)
    rows = Rows(segments, columns, priorities, row_count)
    if not (signature.item_columns or request.item_columns):
        return rows
    item_rows, item_columns = parse_item_columns(request, signature, rows.flags(FIRST))
    return replace(rows, item_rows=item_rows, item_columns=item_columns)


def parse_priorities(tensor: tensor_pb2.Tensor, count: int) -> Floats:
    """Decodes `count` priorities, each finite and at least 0.

    Raises:
      InvalidArgumentError: one is not, or dtype or length is wrong.
    """
    priorities = _decode_list(tensor, "priorities", np.dtype(np.float64), count)
    valid = (priorities >= 0) & (priorities < np.inf)
    if not valid.all():
        at = int(np.flatnonzero(~valid)[0])
        raise InvalidArgumentError(
            f"priorities[{at}]: got {priorities[at]}, expected a finite number of at least 0"
        )
    return priorities


def parse_update(request: pb.UpdatePrioritiesRequest) -> tuple[Ints, Floats]:
    """Decodes keys and their priorities.

    Raises:
      InvalidArgumentError: a priority is negative, NaN or infinite, a dtype is
        wrong, or the lists differ in length.
    """
    keys = parse_keys(request.item_keys)
    return keys, parse_priorities(request.priorities, len(keys))


def parse_keys(tensor: tensor_pb2.Tensor) -> Ints:
    """Decodes item keys [n].

    Raises:
      InvalidArgumentError: they are not an int64 list.
    """
    return _decode_list(tensor, "item_keys", np.dtype(np.int64), None)


def _parse_values(
    column: pb.ColumnData, data: bytes | memoryview | None, signature: Signature
) -> Values:
    spec = signature.by_name.get(column.name)
    if spec is None or spec.codec is Codec.RAW:
        return decode(column.values, name=f"column {column.name!r}", data=data)
    if not column.HasField("compressed"):
        raise InvalidArgumentError(
            f"column {column.name!r}: got values that are not compressed, expected {spec}"
        )
    rows = CompressedRows.from_proto(column.compressed, spec, data)
    check(rows)
    return rows


def parse_elsewhere(request: pb.ExchangeCountsRequest) -> Elsewhere:
    """Reads what other shards have counted.

    Raises:
      InvalidArgumentError: a count is negative.
    """
    counts = (request.inserted_item_count, request.sampled_item_count, request.min_item_count)
    if min(counts) < 0:
        raise InvalidArgumentError(f"counts: got {counts}, expected each to be at least 0")
    return Elsewhere(*counts)


def _parse_segments(request: pb.InsertRequest) -> tuple[list[Segment], int]:
    segments: list[Segment] = []
    names: set[str] = set()
    total = 0
    for message in request.segments:
        segment = Segment(message.stream_id, message.start_row, message.row_count)
        if not 1 <= len(segment.stream_id) <= MAX_STREAM_ID_LENGTH:
            raise InvalidArgumentError(
                f"stream_id: got {len(segment.stream_id)} characters, "
                f"expected 1 to {MAX_STREAM_ID_LENGTH}"
            )
        if segment.row_count < 1:
            raise _segment_error(segment, f"row_count: got {segment.row_count}, expected >= 1")
        if not 0 <= segment.start_row < MAX_ROW:
            raise _segment_error(
                segment, f"start_row: got {segment.start_row}, expected it in [0, 2^62)"
            )
        total += segment.row_count
        segments.append(segment)
        names.add(segment.stream_id)
    if not segments:
        raise InvalidArgumentError("segments: got none, expected at least one")
    if len(names) != len(segments):
        raise InvalidArgumentError(
            f"segments: got {len(segments)} of {len(names)} streams, expected each stream once"
        )
    return segments, total


def _segment_error(segment: Segment, problem: str) -> InvalidArgumentError:
    return InvalidArgumentError(f"segment of stream {segment.stream_id!r}: {problem}")


def _decode_list(
    tensor: tensor_pb2.Tensor, name: str, dtype: np.dtype[np.generic], count: int | None
) -> AnyArray:
    values = decode(tensor, name=name)
    if values.dtype != dtype or values.ndim != 1 or count not in (None, len(values)):
        length = "n" if count is None else count
        raise InvalidArgumentError(
            f"{name}: got {values.dtype} {list(values.shape)}, expected {dtype} [{length}]"
        )
    return values
