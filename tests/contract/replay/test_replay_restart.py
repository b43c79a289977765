"""Replay servers that are killed and come back from a checkpoint, as real processes."""

import random
import signal
import socket
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

from mycelia_core.clients.replay import ReplayClient
from mycelia_core.rpc.errors import FailedPreconditionError, UnavailableError
from mycelia_core.specs import ColumnSpec, Signature
from mycelia_replay.alone import parse_table
from mycelia_replay.checkpoint.folder import find_all
from mycelia_replay.checkpoint.reading import restore
from mycelia_replay.table import Table

SIGNATURE = Signature.of([ColumnSpec("observation", np.dtype(np.int64), (2,))])
COLUMNS = "columns=observation:int64:2"


@pytest.fixture
def start_replay():
    processes = []

    def start(*arguments):
        process = subprocess.Popen(
            [sys.executable, "-m", "mycelia_replay", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        processes.append(process)
        line = process.stdout.readline()
        assert line.startswith("ready address="), process.communicate()[1]
        return process, line.strip().removeprefix("ready address=")

    yield start
    for process in processes:
        if process.poll() is None:
            process.kill()
        process.communicate(timeout=10)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def row(stream, number, first):
    """One row whose observation names it."""
    return {
        "observation": np.array([[stream, number]]),
        "reward": np.zeros(1, np.float32),
        "first": np.array([first]),
        "terminated": np.zeros(1, np.bool_),
        "truncated": np.zeros(1, np.bool_),
    }


def wait_for_info(client, seconds=15.0):
    deadline = time.monotonic() + seconds
    while True:
        try:
            return client.info()[0]
        except (UnavailableError, TimeoutError):
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


class Actor(threading.Thread):
    """Appends numbered rows of one stream until it is told to stop, then flushes."""

    def __init__(self, client, stream, pause_seconds=0.0):
        super().__init__(daemon=True)
        self.client, self.stream, self.pause_seconds = client, stream, pause_seconds
        self.stop = threading.Event()
        self.count, self.error, self.longest_append = 0, None, 0.0

    def run(self):
        try:
            name = f"actor-{self.stream}"
            with self.client.writer("train", [name], SIGNATURE, timeout_seconds=30) as writer:
                while not self.stop.is_set():
                    start = time.monotonic()
                    writer.append(row(self.stream, self.count, self.count == 0))
                    self.longest_append = max(self.longest_append, time.monotonic() - start)
                    self.count += 1
                    time.sleep(self.pause_seconds)
        except Exception as error:  # noqa: BLE001 - for the test's own thread to see
            self.error = error


class Learner(threading.Thread):
    """Samples and updates priorities until it is told to stop."""

    def __init__(self, client):
        super().__init__(daemon=True)
        self.client = client
        self.stop = threading.Event()
        self.batch_count, self.failed_update_count, self.error = 0, 0, None

    def run(self):
        try:
            with self.client.sampler("train", 64, stop=self.stop) as sampler:
                for batch in sampler:
                    self.batch_count += 1
                    stream, number = np.moveaxis(batch.columns["observation"], -1, 0)
                    assert (stream[0] == stream[1]).all()
                    assert (number[0] + 1 == number[1]).all()
                    self.update(batch)
        except Exception as error:  # noqa: BLE001 - for the test's own thread to see
            self.error = error

    def update(self, batch):
        try:
            self.client.update_priorities("train", batch.item_keys, np.ones(64), timeout=1)
        except (UnavailableError, TimeoutError):
            self.failed_update_count += 1


def settings_of(capacity_rows):
    return (
        f"name=train,capacity_rows={capacity_rows},min_items_to_sample=100,"
        f"samples_per_insert=2,error_buffer=400,{COLUMNS}"
    )


def rows_on_disk(folder, table):
    """Every (stream, number) in the newest checkpoint, and its table."""
    config, signature = parse_table(table)
    restored = restore(folder, "", lambda: [Table(config, signature, np.random.SeedSequence(1))])
    table = restored.tables[0]
    rows = table._ring.read(table.oldest_key, table._ring.next_key)["observation"]
    return [tuple(pair) for pair in rows.tolist()], table


def kill_under_load(start_replay, folder, away_seconds):
    table = settings_of(1_000_000)
    arguments = ["--bind", f"127.0.0.1:{free_port()}", "--checkpoint-dir", str(folder)]
    arguments += ["--checkpoint-period-seconds", "0.5", "--table", table]
    process, address = start_replay(*arguments)
    clients = [ReplayClient(address, "") for _ in range(9)]
    actors = [Actor(client, i, 0.001) for i, client in enumerate(clients[1:])]
    learner = Learner(clients[0])
    for thread in (*actors, learner):
        thread.start()
    time.sleep(2.0)
    process.kill()
    process.wait()
    time.sleep(away_seconds)
    batches_before = learner.batch_count
    process, _ = start_replay(*arguments)
    time.sleep(2.0)
    for actor in actors:
        actor.stop.set()
    for actor in actors:
        actor.join(35)
    learner.stop.set()
    learner.join(5)
    info = clients[0].info()[0]
    for client in clients:
        client.close()
    process.send_signal(signal.SIGTERM)
    assert process.wait(15) == 0

    assert [actor.error for actor in actors] == [None] * 8
    assert learner.error is None
    assert learner.batch_count > batches_before + 10
    assert max(actor.longest_append for actor in actors) < 30
    sent = sum(actor.count for actor in actors)
    rows, restored = rows_on_disk(folder, table)
    assert len(rows) == len(set(rows)), "a row was stored twice"
    assert len(rows) == info.row_count == info.inserted_row_count
    assert info.inserted_row_count + info.missing_row_count == sent
    # All that was stored after the restart is there without a gap.
    for actor in actors:
        numbers = [number for stream, number in rows if stream == actor.stream]
        breaks = int((np.diff(sorted(numbers)) != 1).sum())
        assert breaks <= 1
        assert max(numbers) == actor.count - 1
    assert restored.counters.missing_rows == info.missing_row_count
    return info


def test_killed_under_load_no_row_is_stored_twice_and_every_lost_one_is_counted(
    start_replay, tmp_path
):
    kill_under_load(start_replay, tmp_path, away_seconds=1.0)


@pytest.mark.slow
def test_killed_under_load_and_away_for_20_seconds(start_replay, tmp_path):
    kill_under_load(start_replay, tmp_path, away_seconds=20.0)


def fill(client, count, generator):
    with client.writer("train", ["a"], SIGNATURE, chunk_rows=64) as writer:
        for number in range(count):
            writer.append(row(0, number, number == 0), priorities=generator.random(1))


def next_batches(client, count):
    with client.sampler("train", 32, prefetch=4) as sampler:
        return [sampler.next(timeout=10) for _ in range(count)]


def assert_same(one, other):
    np.testing.assert_array_equal(one.item_keys, other.item_keys)
    np.testing.assert_array_equal(one.probabilities, other.probabilities)
    np.testing.assert_array_equal(one.times_sampled, other.times_sampled)
    assert (one.item_count, one.total_priority) == (other.item_count, other.total_priority)
    for name, values in one.columns.items():
        np.testing.assert_array_equal(values, other.columns[name])


def test_restored_under_a_rate_limiter_it_samples_at_once_what_it_would_have_sampled(
    start_replay, tmp_path
):
    table = (
        f"name=train,capacity_rows=5000,min_items_to_sample=1000,samples_per_insert=8,"
        f"error_buffer=8000,{COLUMNS}"
    )
    arguments = ["--checkpoint-dir", str(tmp_path), "--checkpoint-period-seconds", "0"]
    process, address = start_replay(*arguments, "--table", table)
    with ReplayClient(address, "") as client:
        generator = np.random.default_rng(2)
        with client.sampler("train", 512, prefetch=1) as sampler:
            filling = threading.Thread(target=fill, args=(client, 4000, generator))
            filling.start()
            for _ in range(40):
                sampler.next(timeout=10)
            filling.join()
        saved = client.save_checkpoint()
        assert saved.pause_seconds < 1.0
        before = client.info()[0]
        expected = next_batches(client, 100)
    process.kill()
    process.wait()

    _, address = start_replay(*arguments, "--table", table)
    with ReplayClient(address, "") as client:
        start = time.monotonic()
        after = wait_for_info(client)
        batches = next_batches(client, 1)
        assert time.monotonic() - start < 2.0
        for name in ("row_count", "item_count", "inserted_item_count", "sampled_item_count"):
            assert getattr(after, name) == getattr(before, name), name
        assert after.total_priority == before.total_priority
        assert after.updated_priority_count == before.updated_priority_count
        assert client.save_checkpoint().path.endswith("checkpoint-00000002")
    assert_same(batches[0], expected[0])


def test_the_next_100_batches_after_a_kill_are_those_of_a_server_never_stopped(
    start_replay, tmp_path
):
    arguments = ["--checkpoint-dir", str(tmp_path), "--table", f"capacity_rows=2000,{COLUMNS}"]
    process, address = start_replay(*arguments)
    with ReplayClient(address, "") as client:
        fill(client, 1500, np.random.default_rng(2))
        client.save_checkpoint()
        expected = next_batches(client, 100)
    process.kill()
    process.wait()

    _, address = start_replay(*arguments)
    with ReplayClient(address, "") as client:
        wait_for_info(client)
        for one, other in zip(expected, next_batches(client, 100), strict=True):
            assert_same(one, other)


def test_a_signal_saves_what_was_acknowledged(start_replay, tmp_path):
    arguments = ["--checkpoint-dir", str(tmp_path), "--table", f"capacity_rows=2000,{COLUMNS}"]
    process, address = start_replay(*arguments)
    with ReplayClient(address, "") as client:
        fill(client, 333, np.random.default_rng(2))
    process.send_signal(signal.SIGTERM)
    assert process.wait(15) == 0

    rows, _ = rows_on_disk(tmp_path, f"capacity_rows=2000,{COLUMNS}")

    assert rows == [(0, number) for number in range(333)]


def test_without_a_folder_a_checkpoint_is_refused_with_the_option(start_replay):
    _, address = start_replay("--table", f"capacity_rows=2000,{COLUMNS}")
    with (
        ReplayClient(address, "") as client,
        pytest.raises(FailedPreconditionError, match="--checkpoint-dir"),
    ):
        client.save_checkpoint()


@pytest.mark.slow
def test_killed_at_20_instants_of_checkpointing_under_load(start_replay, tmp_path):
    generator = random.Random(5)
    table = settings_of(20_000)
    arguments = ["--bind", f"127.0.0.1:{free_port()}", "--checkpoint-dir", str(tmp_path)]
    arguments += ["--checkpoint-period-seconds", "0.05", "--table", table]
    newest = 0
    for instant in range(20):
        process, address = start_replay(*arguments)
        with ReplayClient(address, "") as client:
            wait_for_info(client)
            learner, actor = Learner(client), Actor(client, instant)
            learner.start()
            actor.start()
            time.sleep(generator.uniform(0.3, 1.0))
            process.kill()
            process.wait()
            actor.stop.set()
            learner.stop.set()
        actor.join(2)
        learner.join(2)
        rows, _ = rows_on_disk(tmp_path, table)
        assert len(rows) == len(set(rows))
        assert find_all(tmp_path)[0][0] >= newest
        newest = find_all(tmp_path)[0][0]
