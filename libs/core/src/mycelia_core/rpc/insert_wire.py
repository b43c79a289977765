"""Insert's requests as bytes: written and read without copying large columns more than once."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from mycelia.experience.v1 import signature_pb2, tensor_pb2
from mycelia.replay.v1 import replay_pb2 as pb
from mycelia_core.rpc.wire import field_prefix, fields

METHOD = "/mycelia.replay.v1.ReplayService/Insert"

LEAST_BYTES = 16 * 1024
"""Smaller columns are left to protobuf, which is faster at many small fields."""

_COLUMNS = pb.InsertRequest.COLUMNS_FIELD_NUMBER
_VALUES = pb.ColumnData.VALUES_FIELD_NUMBER
_COMPRESSED = pb.ColumnData.COMPRESSED_FIELD_NUMBER
_DATA = {
    _VALUES: tensor_pb2.Tensor.DATA_FIELD_NUMBER,
    _COMPRESSED: signature_pb2.CompressedRows.DATA_FIELD_NUMBER,
}


@dataclass(slots=True)
class Insert:
    """An `InsertRequest`, the data of its large columns apart from the rest."""

    head: pb.InsertRequest
    """All but that data."""

    data: Mapping[str, bytes | memoryview] = field(default_factory=dict)
    """Of large columns, by name; in `head` these have none."""

    @property
    def sequence(self) -> int:
        """The request's number."""
        return self.head.sequence

    @sequence.setter
    def sequence(self, sequence: int) -> None:
        self.head.sequence = sequence


def write(insert: Insert) -> bytes:
    """Serializes a request; one copy of the large columns."""
    if not insert.data:
        return insert.head.SerializeToString()
    rest = pb.InsertRequest()
    rest.CopyFrom(insert.head)
    del rest.columns[:]
    pieces: list[bytes | memoryview] = []
    for column in insert.head.columns:
        data = insert.data.get(column.name)
        if data is None:
            rest.columns.append(column)
        else:
            pieces += _write_column(column, data)
    return b"".join([rest.SerializeToString(), *pieces])


def read(message: bytes) -> Insert:
    """Parses a serialized request; no copy of the large columns.

    Raises:
      ValueError: it is malformed.
      DecodeError: it is malformed.
    """
    rest: list[memoryview] = []
    data: dict[str, bytes | memoryview] = {}
    large: list[pb.ColumnData] = []
    for number, value, whole in fields(memoryview(message)):
        if number == _COLUMNS and len(value) >= LEAST_BYTES:
            column, bulk = _read_column(value)
            large.append(column)
            data[column.name] = bulk
        else:
            rest.append(whole)
    head = pb.InsertRequest.FromString(b"".join(rest))
    head.columns.extend(large)
    return Insert(head, data)


def _write_column(column: pb.ColumnData, data: bytes | memoryview) -> list[bytes | memoryview]:
    number = _COMPRESSED if column.HasField("compressed") else _VALUES
    values = column.compressed if number == _COMPRESSED else column.values
    inner = values.SerializeToString() + field_prefix(_DATA[number], len(data))
    name = pb.ColumnData(name=column.name).SerializeToString()
    outer = name + field_prefix(number, len(inner) + len(data)) + inner
    return [field_prefix(_COLUMNS, len(outer) + len(data)), outer, data]


def _read_column(message: memoryview) -> tuple[pb.ColumnData, memoryview]:
    rest: list[bytes | memoryview] = []
    bulk = memoryview(b"")
    for number, value, whole in fields(message):
        if number not in _DATA:
            rest.append(whole)
            continue
        inner: list[memoryview] = []
        for inner_number, inner_value, inner_whole in fields(value):
            if inner_number == _DATA[number]:
                bulk = inner_value
            else:
                inner.append(inner_whole)
        rest += [field_prefix(number, sum(map(len, inner))), *inner]
    return pb.ColumnData.FromString(b"".join(rest)), bulk
