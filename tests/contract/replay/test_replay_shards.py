"""Several replay servers as one table: one distribution, whichever of them are there."""

import threading
import time

import numpy as np
import pytest

from mycelia_core.clients.replay import ReplayClient
from mycelia_core.clients.shard_keys import shards_of
from mycelia_core.clients.sharded_replay import ShardedReplayClient
from mycelia_core.clients.sharded_sampler import ShardedSampler

RUN_ID = "the-run"
TIMEOUT_SECONDS = 0.5


@pytest.fixture
def shards(start_server, make_table):
    """Starts servers and returns them and a client of all."""
    clients = []

    def start(count=2, **settings):
        servers = [start_server(make_table(capacity_rows=500, **settings)) for _ in range(count)]
        clients.append(
            ShardedReplayClient(
                [ReplayClient(server.address, RUN_ID) for server in servers],
                shard_timeout_seconds=TIMEOUT_SECONDS,
            )
        )
        return servers, clients[-1]

    yield start
    for client in clients:
        client.close()


def fill(server, signature, columns_of, priorities):
    """Inserts one item of each priority."""
    count = len(priorities) + 1
    columns = columns_of(count, flags=["f", *[""] * (count - 2), "t"])
    with (
        ReplayClient(server.address, RUN_ID) as client,
        client.writer("train", [server.address], signature) as writer,
    ):
        for i in range(count):
            priority = np.array([priorities[i] if i < count - 1 else 1.0])
            row = {name: values[i : i + 1] for name, values in columns.items()}
            writer.append(row, priorities=priority)


def draw(sampler, count):
    """Draws items until there are `count`; returns keys and probabilities."""
    batches = []
    while sum(len(batch.item_keys) for batch in batches) < count:
        batches.append(sampler.next(timeout=20))
    keys = np.concatenate([batch.item_keys for batch in batches])
    return keys, np.concatenate([batch.probabilities for batch in batches]), batches[-1]


def test_two_shards_are_drawn_from_in_proportion_to_their_priorities(shards, signature, columns_of):
    servers, client = shards(priority_exponent=1.0)
    fill(servers[0], signature, columns_of, [9.0] * 10)
    fill(servers[1], signature, columns_of, [1.0] * 10)

    with client.sampler("train", 512, seed=3) as sampler:
        wait_for(sampler, 2)
        keys, probabilities, batch = draw(sampler, 100_000)

    assert (shards_of(keys) == 0).mean() == pytest.approx(0.9, abs=0.01)
    np.testing.assert_allclose(probabilities, np.where(shards_of(keys) == 0, 0.09, 0.01))
    assert (batch.item_count, batch.total_priority) == (20, pytest.approx(100.0))


def wait_for(sampler: ShardedSampler, count, seconds=10.0):
    """Waits until so many shards are drawn from."""
    deadline = time.monotonic() + seconds
    while sum(c is not None for c in sampler._exchange.counts()) != count:
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_the_probability_is_that_over_all_shards_whatever_their_sizes(
    shards, signature, columns_of
):
    servers, client = shards(priority_exponent=1.0)
    fill(servers[0], signature, columns_of, [4.0, 1.0, 1.0])
    fill(servers[1], signature, columns_of, [0.5, 0.5])

    with client.sampler("train", 64, seed=1) as sampler:
        wait_for(sampler, 2)
        keys, probabilities, batch = draw(sampler, 20_000)

    expected = {(0, 0): 4 / 7, (0, 1): 1 / 7, (0, 2): 1 / 7, (1, 0): 1 / 14, (1, 1): 1 / 14}
    for (shard, slot), probability in expected.items():
        mine = (shards_of(keys) == shard) & (keys % 2**44 == slot)
        np.testing.assert_allclose(probabilities[mine], probability)
        assert mine.mean() == pytest.approx(probability, abs=0.02)
    assert batch.item_count == 5


def test_priorities_go_back_to_the_shard_that_they_are_of(shards, signature, columns_of):
    servers, client = shards(priority_exponent=1.0)
    fill(servers[0], signature, columns_of, [1.0] * 4)
    fill(servers[1], signature, columns_of, [1.0] * 4)
    with client.sampler("train", 64, seed=1) as sampler:
        wait_for(sampler, 2)
        keys, _, _ = draw(sampler, 1000)
    keys = np.unique(keys)

    result = client.update_priorities("train", keys, np.where(shards_of(keys) == 0, 5.0, 2.0))

    assert result == (8, 0)
    assert [server.table.total_priority for server in servers] == [20.0, 8.0]


def test_a_lost_shard_is_left_out_with_right_weights_and_comes_back(
    shards, start_server, make_table, signature, columns_of, caplog
):
    servers, client = shards(priority_exponent=1.0)
    fill(servers[0], signature, columns_of, [9.0] * 10)
    fill(servers[1], signature, columns_of, [1.0] * 10)
    with client.sampler("train", 64, seed=1) as sampler:
        wait_for(sampler, 2)
        lost = servers[1]
        lost.stop()
        wait_for(sampler, 1)

        keys, probabilities, batch = draw(sampler, 5000)

        assert (shards_of(keys) == 0).all()
        np.testing.assert_allclose(probabilities, 0.1)
        assert (batch.item_count, batch.total_priority) == (10, pytest.approx(90.0))
        assert sampler.lost_shard_count == 1
        assert "shard 1" in caplog.text
        assert "is lost" in caplog.text
        gone = np.array([1 << 56], np.int64)
        assert client.update_priorities("train", gone, [1.0], timeout=1) == (0, 1)

        start_server(lost.table, bind=lost.address)
        wait_for(sampler, 2, seconds=15)
        keys, probabilities, _ = draw(sampler, 20_000)

        assert (shards_of(keys) == 0).mean() == pytest.approx(0.9, abs=0.02)
        assert sampler.lost_shard_count == 0


def test_streams_are_dealt_out_evenly_and_an_append_reaches_every_shard(
    shards, signature, columns_of
):
    servers, client = shards(count=3)
    names = [f"actor/{i}" for i in range(7)]
    with client.writer("train", names, signature, chunk_rows=2) as writer:
        for step in range(10):
            writer.append(columns_of(7, first_observation=step, flags=["f"] * 7 * (step == 0)))

    rows = sorted(server.table.row_count for server in servers)
    assert rows == [20, 20, 30]
    assert writer.stored_row_count == 70
    assert client.info()[0].row_count == 70


def test_a_writer_goes_on_without_a_lost_shard_and_the_gap_is_counted(
    shards, start_server, signature, columns_of
):
    servers, client = shards()
    names = ["actor/0", "actor/1"]
    with client.writer("train", names, signature, chunk_rows=1, max_in_flight=2) as writer:

        def append(count, first):
            flags = ["f", "f"] if first else []
            for step in range(count):
                writer.append(columns_of(2, flags=flags if step == 0 else []))

        append(5, True)
        writer.flush(5)
        lost = servers[0]
        lost.stop()
        append(30, False)
        assert writer.dropped_row_count > 0
        deadline = time.monotonic() + 5
        while servers[1].table.row_count < 30:
            assert time.monotonic() < deadline
            time.sleep(0.02)

        start_server(lost.table, bind=lost.address)
        deadline = time.monotonic() + 15
        while lost.table.counters.missing_rows == 0:
            append(1, False)
            assert time.monotonic() < deadline
            time.sleep(0.05)
        writer.flush(5)
        dropped = writer.dropped_row_count

    counters = lost.table.counters
    assert counters.missing_rows == dropped
    assert counters.inserted_rows + counters.missing_rows == servers[1].table.row_count


def test_the_rate_limiter_holds_the_ratio_over_all_shards_however_uneven_their_shares(
    shards, signature, columns_of
):
    _, client = shards(
        priority_exponent=1.0, samples_per_insert=4.0, min_items_to_sample=20, error_buffer=128
    )
    over = threading.Event()

    def act():
        names = ["actor/0", "actor/1"]
        with client.writer("train", names, signature, chunk_rows=4, timeout_seconds=20) as writer:
            step = 0
            while not over.is_set():
                # One shard's items weigh nineteen times the other's.
                weights = np.where(writer._shard_of == 0, 19.0, 1.0)
                columns = columns_of(2, flags=["f", "f"] if step == 0 else [])
                writer.append(columns, priorities=weights)
                step += 1

    actor = threading.Thread(target=act, daemon=True)
    actor.start()
    with client.sampler("train", 64, seed=1) as sampler:
        wait_for(sampler, 2)
        for _ in range(300):
            sampler.next(timeout=20)
        keys, _, _ = draw(sampler, 5000)
        (info,) = client.info()
        over.set()
        for _ in range(20):
            if actor.is_alive():
                sampler.next(timeout=20)
    actor.join(10)

    assert (shards_of(keys) == 0).mean() == pytest.approx(0.95, abs=0.02)
    expected = info.inserted_item_count - 40
    assert info.sampled_item_count == pytest.approx(4 * expected, rel=0.1, abs=600)
