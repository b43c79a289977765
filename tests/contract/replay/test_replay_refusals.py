"""Every kind of bad input, against a real server: refused whole, named, counted."""

import grpc
import numpy as np
import pytest

from mycelia.experience.v1 import tensor_pb2
from mycelia.replay.v1 import replay_pb2 as pb
from mycelia_core.codec import encode

INVALID = grpc.StatusCode.INVALID_ARGUMENT
PRECONDITION = grpc.StatusCode.FAILED_PRECONDITION


def column(request: pb.InsertRequest, name: str) -> pb.ColumnData:
    return next(column for column in request.columns if column.name == name)


def unknown_column(request):
    request.columns.add(name="smell", values=encode(np.zeros(5)))


def missing_column(request):
    request.columns.remove(column(request, "action"))


def double_column(request):
    request.columns.append(column(request, "action"))


def wrong_dtype(request):
    column(request, "observation").values.CopyFrom(encode(np.zeros((5, 4), np.float64)))


def unset_dtype(request):
    column(request, "observation").values.dtype = tensor_pb2.D_TYPE_UNSPECIFIED


def wrong_shape(request):
    column(request, "observation").values.CopyFrom(encode(np.zeros((5, 3), np.float32)))


def negative_axis(request):
    column(request, "action").values.shape[0] = -5


def wrong_byte_count(request):
    column(request, "observation").values.data = b"\0" * 79


def uneven_rows(request):
    column(request, "action").values.CopyFrom(encode(np.zeros(4, np.int64)))


def nan_priority(request):
    request.priorities.CopyFrom(encode(np.array([1, 1, np.nan, 1, 1])))


def negative_priority(request):
    request.priorities.CopyFrom(encode(np.array([1, 1, 1, -0.5, 1])))


def infinite_priority(request):
    request.priorities.CopyFrom(encode(np.array([np.inf, 1, 1, 1, 1])))


def too_few_priorities(request):
    request.priorities.CopyFrom(encode(np.ones(4)))


def single_precision_priorities(request):
    request.priorities.CopyFrom(encode(np.ones(5, np.float32)))


def no_segments(request):
    del request.segments[:]


def empty_segment(request):
    request.segments[0].row_count = 0


def too_many_rows_announced(request):
    request.segments[0].row_count = 6


def negative_start_row(request):
    request.segments[0].start_row = -1


def huge_start_row(request):
    request.segments[0].start_row = 2**62


def long_stream_id(request):
    request.segments[0].stream_id = "x" * 201


def no_stream_id(request):
    request.segments[0].stream_id = ""


def stream_twice(request):
    del request.segments[:]
    request.segments.add(stream_id="a", start_row=0, row_count=2)
    request.segments.add(stream_id="a", start_row=2, row_count=3)


def first_within_an_episode(request):
    flags = np.array([True, False, True, False, False])
    column(request, "first").values.CopyFrom(encode(flags))


def episode_goes_on_after_its_end(request):
    flags = np.array([False, True, False, False, False])
    column(request, "terminated").values.CopyFrom(encode(flags))


def more_rows_than_the_table(request):
    for name, values in (
        ("observation", np.zeros((31, 4), np.float32)),
        ("action", np.zeros(31, np.int64)),
        ("reward", np.zeros(31, np.float32)),
        ("first", np.zeros(31, np.bool_)),
        ("terminated", np.zeros(31, np.bool_)),
        ("truncated", np.zeros(31, np.bool_)),
    ):
        column(request, name).values.CopyFrom(encode(values))
    request.segments[0].row_count = 31


def old_run(request):
    request.run_id = "last-weeks-run"


BAD_INSERTS = [
    (unknown_column, INVALID, "column 'smell' is unknown; expected observation, action, reward"),
    (missing_column, INVALID, "column 'action' is missing; expected int64 []"),
    (double_column, INVALID, "column 'action' comes twice"),
    (wrong_dtype, INVALID, "column 'observation': got float64 [5, 4], expected float32 [rows, 4]"),
    (unset_dtype, INVALID, "column 'observation': dtype 0 is not one of"),
    (wrong_shape, INVALID, "column 'observation': got float32 [5, 3], expected float32 [rows, 4]"),
    (negative_axis, INVALID, "column 'action': shape [-5] has a negative axis"),
    (wrong_byte_count, INVALID, "column 'observation': got 79 bytes, expected 80"),
    (uneven_rows, INVALID, "column 'action': got 4 rows, the columns before it have 5"),
    (nan_priority, INVALID, "priorities[2]: got nan, expected a finite number of at least 0"),
    (negative_priority, INVALID, "priorities[3]: got -0.5, expected a finite number"),
    (infinite_priority, INVALID, "priorities[0]: got inf, expected a finite number"),
    (too_few_priorities, INVALID, "priorities: got float64 [4], expected float64 [5]"),
    (single_precision_priorities, INVALID, "priorities: got float32 [5], expected float64 [5]"),
    (no_segments, INVALID, "segments: got none, expected at least one"),
    (empty_segment, INVALID, "segment of stream 'a': row_count: got 0, expected >= 1"),
    (too_many_rows_announced, INVALID, "segments: their row_count sums up to 6, expected 5"),
    (negative_start_row, INVALID, "start_row: got -1, expected it in [0, 2^62)"),
    (huge_start_row, INVALID, "start_row: got 4611686018427387904, expected it in [0, 2^62)"),
    (long_stream_id, INVALID, "stream_id: got 201 characters, expected 1 to 200"),
    (no_stream_id, INVALID, "stream_id: got 0 characters, expected 1 to 200"),
    (stream_twice, INVALID, "segments: got 2 of 1 streams, expected each stream once"),
    (first_within_an_episode, INVALID, "stream 'a', row 2: `first` is set, but row 1 did not end"),
    (episode_goes_on_after_its_end, INVALID, "stream 'a', row 2: row 1 ended its episode, so"),
    (more_rows_than_the_table, INVALID, "request: got 31 rows, expected at most capacity_rows=30"),
    (old_run, PRECONDITION, "run_id: got 'last-weeks-run', expected this server's run 'the-run'"),
]


@pytest.fixture
def server(start_server, make_table):
    return start_server(make_table(capacity_rows=30))


@pytest.fixture
def stub(server, stub_of):
    return stub_of(server)


def refusal(call) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.RpcError) as caught:
        call()
    return caught.value.code(), caught.value.details()


@pytest.mark.parametrize(
    ("spoil", "code", "text"), BAD_INSERTS, ids=[spoil.__name__ for spoil, _, _ in BAD_INSERTS]
)
def test_a_bad_insert_is_refused_whole_and_counted(server, stub, insert_request, spoil, code, text):
    good, bad = insert_request(stream="good"), insert_request(sequence=2)
    spoil(bad)
    acknowledged = []

    def insert():
        acknowledged.extend(stub.Insert(iter([good, bad]), timeout=5))

    got_code, got_text = refusal(insert)

    assert (got_code, text in got_text) == (code, True), got_text
    assert server.table.row_count == 5
    assert server.table.counters.refused_requests == 1
    again = list(stub.Insert(iter([insert_request(sequence=3)]), timeout=5))
    assert again[0].stored_row_count == 5


def test_rows_that_contradict_their_stream_are_refused_in_a_later_request(stub, insert_request):
    list(stub.Insert(iter([insert_request(2, flags=("f", "t"))]), timeout=5))

    code, text = refusal(
        lambda: list(stub.Insert(iter([insert_request(2, start_row=2, flags=())]), timeout=5))
    )

    assert code is INVALID
    assert "stream 'a', row 2: row 1 ended its episode, so `first` must be set" in text


def test_a_message_over_the_limit_is_refused_and_the_server_lives_on(
    server, stub_of, insert_request
):
    request = insert_request()
    request.segments[0].stream_id = "x" * (5 * 1024 * 1024)
    with grpc.insecure_channel(
        server.address, options=[("grpc.max_send_message_length", -1)]
    ) as channel:
        from mycelia.replay.v1 import replay_pb2_grpc

        unlimited = replay_pb2_grpc.ReplayServiceStub(channel)
        code, text = refusal(lambda: list(unlimited.Insert(iter([request]), timeout=5)))

    assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert "larger than max" in text
    assert server.table.counters.refused_requests == 1
    assert list(stub_of(server).Insert(iter([insert_request()]), timeout=5))


def test_sequences_must_ascend(stub, insert_request):
    requests = [insert_request(1, sequence=4), insert_request(1, start_row=1, sequence=4)]

    code, text = refusal(lambda: list(stub.Insert(iter(requests), timeout=5)))

    assert (code, text) == (INVALID, "sequence: got 4, expected more than 4")


@pytest.mark.parametrize(
    ("keys", "priorities", "text"),
    [
        (np.zeros(2, np.int64), np.array([1.0, np.nan]), "priorities[1]: got nan"),
        (np.zeros(2, np.int64), np.array([-1.0, 1.0]), "priorities[0]: got -1.0"),
        (np.zeros(2, np.int64), np.array([np.inf, 1.0]), "priorities[0]: got inf"),
        (np.zeros(2, np.int64), np.ones(3), "priorities: got float64 [3], expected float64 [2]"),
        (np.zeros(2, np.int32), np.ones(2), "item_keys: got int32 [2], expected int64 [n]"),
        (np.zeros((1, 2), np.int64), np.ones(2), "item_keys: got int64 [1, 2], expected int64 [n]"),
        (np.zeros(2, np.int64), np.ones(2, np.float32), "priorities: got float32 [2], expected"),
    ],
)
def test_bad_priority_updates_change_nothing(server, stub, insert_request, keys, priorities, text):
    list(stub.Insert(iter([insert_request()]), timeout=5))
    total = server.table.total_priority
    request = pb.UpdatePrioritiesRequest(
        run_id="the-run", table="train", item_keys=encode(keys), priorities=encode(priorities)
    )

    code, got_text = refusal(lambda: stub.UpdatePriorities(request, timeout=5))

    assert code is INVALID
    assert text in got_text
    assert server.table.total_priority == total
    assert server.table.counters.refused_requests == 1


@pytest.mark.parametrize(
    ("change", "code", "text"),
    [
        ({"batch_size": 0}, INVALID, "batch_size: got 0, expected >= 1"),
        ({"credit": 0}, INVALID, "credit: got 0, expected at least 1"),
        ({"run_id": "other"}, PRECONDITION, "run_id: got 'other'"),
        ({"table": "tarin"}, grpc.StatusCode.NOT_FOUND, "table: got 'tarin', expected one of"),
    ],
)
def test_bad_sample_requests_are_refused(stub, change, code, text):
    fields = {"run_id": "the-run", "table": "train", "batch_size": 2, "credit": 1} | change

    got_code, got_text = refusal(
        lambda: list(stub.Sample(iter([pb.SampleRequest(**fields)]), timeout=5))
    )

    assert got_code is code
    assert text in got_text


def test_a_batch_that_the_limiter_can_never_let_through_is_refused_with_the_numbers(
    start_server, make_table, stub_of
):
    table = make_table(samples_per_insert=2.0, error_buffer=16.0)
    stub = stub_of(start_server(table))
    request = pb.SampleRequest(run_id="the-run", table="train", batch_size=33, credit=1)

    code, text = refusal(lambda: list(stub.Sample(iter([request]), timeout=5)))

    assert code is PRECONDITION
    assert "batch_size: got 33, expected at most 32" in text
    assert "error_buffer=16" in text


@pytest.mark.parametrize("call", ["UpdatePriorities", "GetInfo", "Reset"])
def test_every_method_refuses_another_run(stub, call):
    request = {
        "UpdatePriorities": pb.UpdatePrioritiesRequest(run_id="other", table="train"),
        "GetInfo": pb.GetInfoRequest(run_id="other"),
        "Reset": pb.ResetRequest(run_id="other", table="train"),
    }[call]

    code, text = refusal(lambda: getattr(stub, call)(request, timeout=5))

    assert code is PRECONDITION
    assert "'other'" in text
    assert "'the-run'" in text


def test_a_window_longer_than_the_table_is_refused_when_the_table_is_made():
    from mycelia_core.config import TableConfig, WindowConfig
    from mycelia_core.specs import Signature
    from mycelia_replay.table import Table

    window = WindowConfig(learn_rows=20, bootstrap_rows=5, context_rows=10)
    config = TableConfig.model_construct(
        **{**TableConfig().model_dump(), "capacity_rows": 34, "window": window}
    )

    with pytest.raises(ValueError, match=r"a window of 35 rows, .* longer than capacity_rows=34"):
        Table(config, Signature.of([]), np.random.SeedSequence(1))


def test_a_second_server_on_the_port_is_an_error_that_names_it(server, start_server):
    with pytest.raises(OSError, match=server.address):
        start_server(None, server.address)
