"""Writers, samplers and an updater at once: no row is torn and the books balance."""

import threading
import time

import numpy as np
import pytest

from mycelia_core.clients.replay import ReplayClient
from mycelia_core.specs import ColumnSpec, Signature

RUN_ID = "the-run"
COLUMNS = [ColumnSpec(f"field/{i}", np.dtype(np.int64), (16,)) for i in range(4)]
SIGNATURE = Signature.of(COLUMNS)
CAPACITY = 1000


class Worker(threading.Thread):
    """Does one thing with a client of its own until it is told to stop."""

    def __init__(self, address, work):
        super().__init__(daemon=True)
        self.stop = threading.Event()
        self.failure = None
        self.count = 0
        self._address, self._work = address, work

    def run(self):
        try:
            with ReplayClient(self._address, RUN_ID) as client:
                self._work(self, client)
        except Exception as error:  # noqa: BLE001 - for the test's own thread to see
            self.failure = error


def rows(numbers, first):
    """Rows every field of which is one number."""
    columns = {c.name: np.repeat(numbers[:, None], 16, axis=1) for c in COLUMNS}
    flags = np.zeros(len(numbers), np.bool_)
    return columns | {
        "reward": numbers.astype(np.float32),
        "first": np.full(len(numbers), first),
        "terminated": flags,
        "truncated": flags,
    }


def writing(index):
    def work(worker, client):
        names = [f"writer-{index}/{i}" for i in range(4)]
        with client.writer("train", names, SIGNATURE, chunk_rows=4) as writer:
            while not worker.stop.is_set():
                numbers = (index * 4 + np.arange(4)) * 100_000 + worker.count
                writer.append(rows(numbers, worker.count == 0))
                worker.count += 1

    return work


def check(batch):
    first = batch.columns["field/0"][..., 0]
    for column in COLUMNS:
        values = batch.columns[column.name]
        assert (values == first[..., None]).all(), "a torn row"
    assert (batch.columns["reward"] == first.astype(np.float32)).all(), "a torn row"
    assert (np.diff(first, axis=0) == 1).all(), "a window of rows that do not follow"
    assert (batch.probabilities > 0).all()


def sampling(keys):
    def work(worker, client):
        with client.sampler("train", 32, stop=worker.stop) as sampler:
            for batch in sampler:
                check(batch)
                keys.append(batch.item_keys)
                del keys[:-20]
                worker.count += 1

    return work


def updating(keys):
    def work(worker, client):
        generator = np.random.default_rng(1)
        while not worker.stop.is_set():
            for some in list(keys):
                client.update_priorities("train", some, generator.random(len(some)) + 1e-6)
                worker.count += 1
            time.sleep(0.001)

    return work


def stress(start_server, make_table, seconds):
    table = make_table(SIGNATURE, capacity_rows=CAPACITY, bootstrap_rows=3, min_items_to_sample=50)
    server = start_server(table)
    keys = []
    writers = [Worker(server.address, writing(i)) for i in range(4)]
    samplers = [Worker(server.address, sampling(keys)) for _ in range(4)]
    updater = Worker(server.address, updating(keys))
    workers = [*writers, *samplers, updater]
    for worker in workers:
        worker.start()
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and not any(worker.failure for worker in workers):
        time.sleep(0.1)
    for worker in workers:
        worker.stop.set()
    for worker in workers:
        worker.join(15)

    assert [worker.failure for worker in workers] == [None] * len(workers)
    assert all(worker.count > 10 for worker in workers)
    with ReplayClient(server.address, RUN_ID) as client:
        (info,) = client.info()
    written = 4 * sum(writer.count for writer in writers)
    assert info.inserted_row_count == written
    assert info.missing_row_count == 0
    evicted = max(0, written - CAPACITY)
    assert info.row_count == info.inserted_row_count - evicted
    assert info.updated_priority_count > 0
    leaves = table._items._sampler._leaves
    total = float(np.sum(leaves[np.arange(leaves.capacity)]))
    assert info.total_priority == pytest.approx(total, rel=1e-6)


def test_four_writers_four_samplers_and_an_updater_for_five_seconds(start_server, make_table):
    stress(start_server, make_table, seconds=5)


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_four_writers_four_samplers_and_an_updater_for_a_minute(start_server, make_table):
    stress(start_server, make_table, seconds=60)
