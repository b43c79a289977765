"""Several tables on one server, their kinds, and what is stored once per item."""

import threading
import time

import grpc
import numpy as np
import pytest

from mycelia_core.config import TableConfig, WindowConfig
from mycelia_core.rpc.errors import (
    AlreadyExistsError,
    FailedPreconditionError,
    InvalidArgumentError,
    NotFoundError,
)
from mycelia_core.specs import ColumnSpec, Signature

QUEUE = {"sampler": "fifo", "rate_limiter": "queue", "max_times_sampled": 1}


def test_tables_are_made_on_request_and_each_keeps_its_own(
    make_table, start_server, connect, signature, columns_of
):
    server = start_server(make_table())
    client = connect(server)
    config = TableConfig(name="newest", capacity_rows=50, sampler="lifo", window=WindowConfig())

    assert client.create_table(config, signature)
    assert not client.create_table(config, signature)

    with client.writer("newest", ["a"], signature) as writer:
        for i in range(5):
            writer.append({k: v[i : i + 1] for k, v in columns_of(5).items()})
    by_name = {info.name: info for info in client.info()}
    assert by_name["train"].row_count == 0
    assert by_name["newest"].item_count == 4
    settings = by_name["newest"].settings
    assert (settings.sampler, settings.capacity_rows, settings.window.period) == ("lifo", 50, 1)
    with client.sampler("newest", 2) as sampler:
        assert sampler.next(10).item_keys.tolist() == [3, 2]
    with pytest.raises(NotFoundError, match=r"expected one of \['newest', 'train'\]"):
        client.reset("other")


def test_a_table_that_cannot_work_or_differs_from_one_there_is_refused(
    make_table, start_server, connect, signature, stub_of
):
    server = start_server(make_table())
    client = connect(server)
    possible = TableConfig(name="more", capacity_rows=50)
    client.create_table(possible, signature)

    with pytest.raises(AlreadyExistsError, match="capacity_rows=50, got capacity_rows=60"):
        client.create_table(TableConfig(name="more", capacity_rows=60), signature)
    with pytest.raises(AlreadyExistsError, match="column 'observation'"):
        client.create_table(possible, Signature.of([]))
    impossible = TableConfig(capacity_rows=50, name="b", samples_per_insert=4.0, error_buffer=3.0)
    with pytest.raises(InvalidArgumentError, match="would wait for each other"):
        client.create_table(impossible, signature)
    unsound = TableConfig.model_construct(name="c", capacity_rows=5, sampler="best")
    with pytest.raises(InvalidArgumentError, match=r"settings\.sampler"):
        client.create_table(unsound, signature)
    assert {info.name for info in client.info()} == {"train", "more"}


def test_items_are_deleted_by_key_and_count_once(
    make_table, start_server, connect, signature, columns_of
):
    server = start_server(make_table())
    client = connect(server)
    with client.writer("train", ["a"], signature) as writer:
        for i in range(6):
            writer.append({k: v[i : i + 1] for k, v in columns_of(6).items()})

    assert client.delete_items("train", np.array([1, 1, 3, 99])) == (2, 2)
    assert client.delete_items("train", np.array([1])) == (0, 1)

    (info,) = client.info()
    assert (info.item_count, info.row_count, info.deleted_item_count) == (3, 6, 2)
    with client.sampler("train", 64) as sampler:
        assert set(sampler.next(10).item_keys.tolist()) == {0, 2, 4}


def test_inserts_into_a_full_queue_wait_until_items_are_read(
    make_table, start_server, connect, insert_request, stub_of
):
    server = start_server(make_table(**QUEUE, max_items=4, learn_rows=2, period=2))
    client = connect(server)
    requests = [insert_request(9)]
    requests += [insert_request(2, start_row=row, sequence=row, flags=()) for row in (9, 11, 13)]
    acknowledged = []

    def insert():
        acknowledged.extend(stub_of(server).Insert(iter(requests)))

    thread = threading.Thread(target=insert)
    thread.start()
    deadline = time.monotonic() + 10
    while not server.table.row_count or time.monotonic() < deadline - 9.5:
        time.sleep(0.02)
    assert server.table.item_count == 4
    assert server.table.row_count == 9

    with client.sampler("train", 4, prefetch=1) as sampler:
        first = sampler.next(10)
        thread.join(10)
    assert first.item_keys.tolist() == [0, 2, 4, 6]
    assert len(acknowledged) == 4


def test_a_batch_larger_than_the_queue_is_refused(make_table, start_server, connect):
    client = connect(start_server(make_table(**QUEUE, max_items=4)))

    with client.sampler("train", 5) as sampler, pytest.raises(FailedPreconditionError):
        sampler.next(10)


@pytest.mark.parametrize("state_size", [4, 4096])
def test_a_state_travels_once_per_item_and_comes_back_with_it(
    make_table, start_server, connect, columns_of, state_size
):
    signature = Signature.of(
        [
            ColumnSpec("observation", np.dtype(np.float32), (4,)),
            ColumnSpec("action", np.dtype(np.int64), (), 2),
        ],
        [ColumnSpec("state", np.dtype(np.float32), (2, state_size))],
    )
    window = WindowConfig(learn_rows=4, period=2, burn_in_rows=2)
    table = make_table(signature, **window.model_dump(), sampler="uniform")
    client = connect(start_server(table))
    columns = columns_of(31, flags=["f"])
    with client.writer("train", ["a", "b"], signature, window=window, chunk_rows=7) as writer:
        for i in range(31):
            row = {k: np.repeat(v[i : i + 1], 2, axis=0) for k, v in columns.items()}
            state = np.full((2, 2, state_size), i, np.float32)
            writer.append(row, item_columns={"state": state})

    with client.sampler("train", 64) as sampler:
        for _ in range(4):
            batch = sampler.next(10)
            each = np.arange(64)
            starts = batch.burn_in_rows - batch.burn_in_counts
            observed = batch.columns["observation"][starts, each, 0]
            assert batch.burn_in_rows == 2
            assert set(batch.burn_in_counts.tolist()) == {0, 2}
            assert batch.item_columns["state"].shape == (64, 2, state_size)
            assert (batch.item_columns["state"] == observed[:, None, None]).all()
            assert batch.columns.keys() == columns.keys()


def test_an_episode_whose_first_row_lacks_its_state_is_refused(
    make_table, start_server, stub_of, insert_request
):
    state = [ColumnSpec("state", np.dtype(np.float32), (2,))]
    columns = [
        ColumnSpec("observation", np.dtype(np.float32), (4,)),
        ColumnSpec("action", np.dtype(np.int64), (), 2),
    ]
    stub = stub_of(start_server(make_table(Signature.of(columns, state))))

    with pytest.raises(grpc.RpcError, match="row 0 is the first of an episode"):
        list(stub.Insert(iter([insert_request(5)])))


def test_t21_a_batch_that_the_error_buffer_never_lets_through_is_refused(
    make_table, start_server, connect
):
    table = make_table(samples_per_insert=1.0, error_buffer=16.0, min_items_to_sample=10)
    client = connect(start_server(table))

    with (
        client.sampler("train", 256) as sampler,
        pytest.raises(FailedPreconditionError, match="batch_size: got 256, expected at most 32"),
    ):
        sampler.next(10)
