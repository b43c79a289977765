"""Messages whose bytes are written and read by hand are the messages protobuf knows."""

import numpy as np
import pytest

from mycelia.experience.v1 import signature_pb2, tensor_pb2
from mycelia.replay.v1 import replay_pb2 as pb
from mycelia_core.codec import encode
from mycelia_core.parts import Part
from mycelia_core.rpc import insert_wire, sample_wire
from mycelia_core.rpc.wire import fields

BULK = bytes(range(256)) * 100


def whole_request() -> pb.InsertRequest:
    compressed = signature_pb2.CompressedRows(lengths=encode(np.array([1, 2])), data=BULK)
    values = tensor_pb2.Tensor(dtype=tensor_pb2.D_TYPE_UINT8, shape=[100, 256], data=BULK)
    return pb.InsertRequest(
        run_id="run",
        table="train",
        sequence=300,
        segments=[pb.Segment(stream_id="a", start_row=5, row_count=100)],
        columns=[
            pb.ColumnData(name="reward", values=encode(np.ones(3))),
            pb.ColumnData(name="image", values=values),
            pb.ColumnData(name="packed", compressed=compressed),
        ],
        priorities=encode(np.ones(100)),
    )


def test_a_request_is_read_as_protobuf_reads_it():
    insert = insert_wire.read(whole_request().SerializeToString())

    columns = {column.name: column for column in insert.head.columns}
    assert bytes(insert.data["image"]) == bytes(insert.data["packed"]) == BULK
    assert list(columns["image"].values.shape) == [100, 256]
    assert not columns["image"].values.data
    assert columns["packed"].compressed.lengths == encode(np.array([1, 2]))
    assert columns["reward"].values == encode(np.ones(3))
    assert insert.sequence == 300


def test_a_request_is_written_as_protobuf_writes_it():
    insert = insert_wire.read(whole_request().SerializeToString())

    assert pb.InsertRequest.FromString(insert_wire.write(insert)) == whole_request()


def test_a_response_is_written_and_read_as_by_protobuf():
    head = pb.SampleResponse(batch_index=700, last=True)
    parts = [Part(0, 0, BULK), Part(200, 10**10, b"")]

    message = sample_wire.write(head, parts)

    known = pb.SampleResponse.FromString(message)
    assert [(p.tensor_index, p.offset_bytes, p.data) for p in known.parts] == parts
    assert known.batch_index == 700
    read = sample_wire.read(known.SerializeToString())
    assert read.head == head
    assert [(i, offset, bytes(data)) for i, offset, data in read.parts] == parts


@pytest.mark.parametrize("message", [b"\x0a\x05abc", b"\xff", b"\x0b", b"\x0a" + b"\xff" * 12])
def test_a_message_that_is_cut_off_is_refused(message):
    with pytest.raises(ValueError, match=r"cut off|wire type"):
        list(fields(memoryview(message)))
