"""The public client against a real server: rows in, batches out, priorities back."""

import threading

import numpy as np
import pytest

from mycelia_core.rpc.errors import FailedPreconditionError, InvalidArgumentError
from mycelia_core.specs import ColumnSpec, Signature


def step(place: int, count: int = 2, *, last: bool = False) -> dict[str, np.ndarray]:
    return {
        "observation": np.full((count, 4), place, np.float32),
        "action": np.full(count, place % 2),
        "reward": np.full(count, place, np.float32),
        "first": np.full(count, place == 0),
        "terminated": np.full(count, last),
        "truncated": np.zeros(count, np.bool_),
    }


def write_episode(writer, action_count: int) -> None:
    for place in range(action_count + 1):
        writer.append(step(place, last=place == action_count))


@pytest.fixture
def client(start_server, make_table, connect):
    return connect(start_server(make_table(bootstrap_rows=3)))


def test_what_is_written_is_what_is_sampled(client, signature):
    with client.writer("train", ["a/0", "a/1"], signature, chunk_rows=4) as writer:
        write_episode(writer, 10)

    with client.sampler("train", 64) as sampler:
        batch = sampler.next(timeout=10)

    rows = batch.columns["observation"][:, :, 0]
    assert rows.shape == (4, 64)
    assert (rows == np.minimum(rows[0] + np.arange(4)[:, None], 10)).all()
    assert (batch.row_counts == np.minimum(4, 11 - rows[0])).all()
    assert (batch.columns["terminated"] == (rows == 10)).all()
    assert batch.columns["reward"].dtype == np.float32
    assert batch.item_count == 20
    assert batch.probabilities == pytest.approx(np.full(64, 1 / 20))
    assert not batch.columns["observation"].flags.writeable


def test_arrays_may_be_reused_as_soon_as_they_are_appended(client, signature):
    reused = step(0)
    with client.writer("train", ["a/0", "a/1"], signature, chunk_rows=8) as writer:
        for place in range(8):
            for name, values in step(place).items():
                reused[name][...] = values
            writer.append(reused)

    with client.sampler("train", 64) as sampler:
        rows = sampler.next(timeout=10).columns["observation"][:, :, 0]
    assert (rows == rows[0] + np.arange(4)[:, None]).all()


def test_some_streams_may_get_a_row_more_than_others(client, signature):
    with client.writer("train", ["a/0", "a/1"], signature, chunk_rows=16) as writer:
        writer.append(step(0))
        writer.append(step(1))
        writer.append(step(2, 1, last=True), streams=np.array([1]))
        writer.append(
            {**step(2), "first": np.array([False, True])}, priorities=np.array([2.0, np.nan])
        )

    (info,) = client.info()
    assert info.row_count == 7
    assert info.item_count == 2
    assert info.inserted_item_count == 2


def test_unknown_priorities_take_the_largest_sent_with_them(client, signature):
    with client.writer("train", ["a/0", "a/1"], signature, chunk_rows=16) as writer:
        for place in range(4):
            writer.append(step(place), priorities=np.array([5.0 if place else np.nan, np.nan]))

    (info,) = client.info(["train"])
    assert info.item_count == 2
    assert info.total_priority == pytest.approx(2 * 5**0.6)


def test_a_large_batch_comes_in_several_messages(start_server, make_table, connect):
    signature = Signature.of([ColumnSpec("observation", np.dtype(np.uint8), (84, 84))])
    client = connect(start_server(make_table(signature, context_rows=3)))
    with client.writer("train", ["a"], signature, chunk_rows=50) as writer:
        for place in range(100):
            rows = step(place, 1)
            rows["observation"] = np.full((1, 84, 84), place, np.uint8)
            del rows["action"]
            writer.append(rows)

    with client.sampler("train", 200) as sampler:
        batch = sampler.next(timeout=20)

    frames = batch.columns["observation"]
    own = frames[3, :, 0, 0].astype(int)
    assert frames.shape == (5, 200, 84, 84)
    assert batch.context_rows == 3
    assert (frames == frames[:, :, :1, :1]).all()
    for back in range(4):
        assert (frames[3 - back, :, 0, 0] == np.maximum(own - back, 0)).all()


def test_late_priority_updates_never_reach_the_successors(start_server, make_table, connect):
    """Capacity 4: rows A, then B over all of them; updates for A are stale, B untouched."""
    server = start_server(make_table(capacity_rows=4, learn_rows=1, bootstrap_rows=0))
    client = connect(server)
    signature = server.table.signature
    with client.writer("train", ["a"], signature, chunk_rows=4) as writer:
        for place in range(4):
            writer.append(step(place, 1))
        writer.flush()
        with client.sampler("train", 64, prefetch=1) as sampler:
            old_keys = np.unique(sampler.next(timeout=10).item_keys)
        for place in range(4, 8):
            writer.append(step(place, 1))

    result = client.update_priorities("train", old_keys, np.full(4, 1e6))

    assert result == (0, 4)
    (info,) = client.info()
    assert info.stale_update_count == 4
    assert info.total_priority == 4
    drawn = draw(client, 20_000)
    assert chi_square(drawn, 4) < 21.1075
    assert drawn.min() >= 4


def draw(client, count: int) -> np.ndarray:
    with client.sampler("train", 1000, prefetch=4) as sampler:
        return np.concatenate([sampler.next(timeout=10).item_keys for _ in range(count // 1000)])


def chi_square(drawn: np.ndarray, kinds: int) -> float:
    _, observed = np.unique(drawn, return_counts=True)
    expected = len(drawn) / kinds
    return float(((observed - expected) ** 2 / expected).sum())


def test_updated_priorities_change_what_is_drawn(client, signature):
    with client.writer("train", ["a/0", "a/1"], signature) as writer:
        write_episode(writer, 10)
    with client.sampler("train", 500) as sampler:
        keys = np.unique(sampler.next(timeout=10).item_keys)
    priorities = np.zeros(len(keys))
    priorities[[0, 1]] = 1.0

    assert client.update_priorities("train", keys, priorities) == (len(keys), 0)

    assert set(draw(client, 1000).tolist()) == set(keys[:2].tolist())


def test_a_queue_hands_out_every_item_once_in_order(start_server, make_table, connect, signature):
    table = make_table(sampler="fifo", max_times_sampled=1, learn_rows=5, period=5)
    client = connect(start_server(table))
    with client.writer("train", ["a/0", "a/1"], signature, chunk_rows=4) as writer:
        write_episode(writer, 20)

    with client.sampler("train", 4) as sampler:
        batches = [sampler.next(timeout=10) for _ in range(2)]
        with pytest.raises(TimeoutError, match=r"waited 0.3 s for a batch .* has 0 items"):
            sampler.next(timeout=0.3)

    starts = [batch.columns["observation"][0, :, 0].tolist() for batch in batches]
    assert starts == [[0, 0, 5, 5], [10, 10, 15, 15]]


def test_reset_empties_the_table_and_makes_old_keys_stale(client, signature):
    writer = client.writer("train", ["a/0", "a/1"], signature)
    write_episode(writer, 10)
    writer.flush()
    with client.sampler("train", 8) as sampler:
        keys = sampler.next(timeout=10).item_keys

    removed = client.reset("train")

    assert removed == 22
    assert client.update_priorities("train", keys, np.ones(8)) == (0, 8)
    write_episode(writer, 10)
    writer.close()
    (info,) = client.info()
    assert (info.row_count, info.item_count, info.inserted_row_count) == (22, 20, 44)


def test_a_refusal_reaches_the_writer_and_the_sampler(client, connect, signature):
    other = Signature.of([*signature.starting_with("observation")])
    writer = client.writer("train", ["a"], other, chunk_rows=1)
    rows = step(0, 1)
    del rows["action"]
    writer.append(rows)

    with pytest.raises(InvalidArgumentError, match="column 'action' is missing"):
        writer.close(timeout=5)
    client.run_id = "yesterday"
    with (
        client.sampler("train", 4) as sampler,
        pytest.raises(FailedPreconditionError, match=r"got 'yesterday', expected .* 'the-run'"),
    ):
        sampler.next(timeout=5)


def test_the_writer_refuses_rows_that_do_not_fit_before_it_records_any(client, signature):
    writer = client.writer("train", ["a/0", "a/1"], signature)

    with pytest.raises(InvalidArgumentError, match=r"'action': got float64 \[2\], expected int64"):
        writer.append({**step(0), "action": np.zeros(2)})
    with pytest.raises(InvalidArgumentError, match="'reward' is missing"):
        writer.append({k: v for k, v in step(0).items() if k != "reward"})
    with pytest.raises(InvalidArgumentError, match=r"\['smell'\] are unknown"):
        writer.append({**step(0), "smell": np.zeros(2)})
    with pytest.raises(InvalidArgumentError, match="streams: expected each once"):
        writer.append(step(0), streams=np.array([1, 1]))
    writer.close()

    assert client.info()[0].row_count == 0


def test_concurrent_writers_samplers_and_updates_keep_every_record_whole(
    start_server, make_table, connect, signature
):
    """Every field of a record is the same number; the tree's total stays the sum of its leaves."""
    server = start_server(make_table(capacity_rows=500, context_rows=1))
    clients = [connect(server) for _ in range(5)]
    stop, torn = threading.Event(), []

    def write(client, name):
        with client.writer("train", [name], signature, chunk_rows=8) as writer:
            place = 0
            while not stop.is_set():
                writer.append(step(place, 1))
                place = (place + 1) % 1000 or 1

    def sample(client):
        with client.sampler("train", 64) as sampler:
            while not stop.is_set():
                batch = sampler.next(timeout=10)
                rows = batch.columns["observation"]
                same = (rows == batch.columns["reward"][:, :, None]).all()
                torn.append(not same or (rows[2] - rows[1] % 999 != 1).any())
                client.update_priorities("train", batch.item_keys, rows[0, :, 0] + 1.0)

    threads = [threading.Thread(target=write, args=(c, f"w{i}")) for i, c in enumerate(clients[:3])]
    threads += [threading.Thread(target=sample, args=(c,)) for c in clients[3:]]
    for thread in threads:
        thread.start()
    stop.wait(2)
    stop.set()
    for thread in threads:
        thread.join(10)

    (info,) = clients[0].info()
    leaves = server.table._items._sampler._leaves
    assert len(torn) > 10
    assert not any(torn)
    assert info.row_count == 500
    assert info.total_priority == pytest.approx(leaves._leaves.sum(), rel=1e-6)
