"""Pushing gradients in rounds, against a real parameter server."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from mycelia.run.v1 import run_pb2
from mycelia_core.clients.gradients import GradientClient, PushOutcome
from mycelia_core.clients.run import RunClient

APPLIED, LATE = PushOutcome.APPLIED, PushOutcome.LATE


@pytest.fixture
def sync_run(gradient_run):
    """Creates a run with rounds and returns its clients: the workers' and the weights'."""
    clients = []

    def create(workers, **gradients):
        client, params = gradient_run(
            "sync-gradients", tensors={"w": np.zeros(3, np.float32)}, workers=workers, **gradients
        )
        clients.extend(GradientClient(client.address, client.run_id) for _ in range(workers))
        return clients, params

    yield create
    for client in clients:
        client.close()


@pytest.fixture
def pool():
    with ThreadPoolExecutor(16) as pool:
        yield pool


def push(client, worker, fill=1.0, **changes):
    gradient = fill if isinstance(fill, dict) else {"w": np.full(3, fill, np.float32)}
    settings = {
        "version": 1,
        "worker_id": f"worker {worker}",
        "sequence": 1,
        "sample_count": 1,
        "timeout": 20,
    }
    return client.push(gradient, **(settings | changes))


def wait_until(condition, seconds=5.0):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def staleness_total(client):
    return sum(client.info().staleness_counts)


def test_a_round_closes_when_all_have_come_and_is_one_update(sync_run, pool):
    clients, params = sync_run(workers=3)

    pending = [pool.submit(push, client, n, float(n)) for n, client in enumerate(clients)]
    results = [future.result() for future in pending]

    assert {result.outcome for result in results} == {APPLIED}
    assert {result.version for result in results} == {2}
    for result in results:
        np.testing.assert_array_equal(result.weights.tensors["w"], np.full(3, -1.0))
    assert params.get().version == 2


def test_no_update_is_made_before_the_last_has_come(sync_run, pool):
    clients, params = sync_run(workers=2)
    first = pool.submit(push, clients[0], 0)
    wait_until(lambda: staleness_total(clients[1]) == 1)

    assert params.get().version == 1
    assert not first.done()

    push(clients[1], 1)
    assert first.result().version == 2


@pytest.mark.parametrize("workers", [1, 3, 8])
def test_the_mean_of_the_workers_is_the_gradient_of_their_joined_batch(sync_run, pool, workers):
    rng = np.random.default_rng(7)
    inputs, targets = rng.standard_normal((600, 3)), rng.standard_normal(600)
    cuts = np.sort(rng.choice(np.arange(1, 600), workers - 1, replace=False))
    clients, _ = sync_run(workers=workers, max_grad_norm=0.5)

    def gradient(rows):
        x, y = inputs[rows], targets[rows]
        return 2 * (x @ np.array([0.5, -0.25, 1.0]) - y) @ x / len(y)

    parts = np.split(np.arange(600), cuts)
    pending = [
        pool.submit(
            push, client, n, {"w": gradient(rows).astype(np.float32)}, sample_count=len(rows)
        )
        for n, (client, rows) in enumerate(zip(clients, parts, strict=True))
    ]
    moved = -pending[0].result().weights.tensors["w"]

    joined = gradient(np.arange(600))
    clipped = joined * min(1.0, 0.5 / np.linalg.norm(joined))
    np.testing.assert_allclose(moved, clipped, atol=1e-6)


def test_parts_of_a_batch_are_weighted_by_their_samples_and_clipped_after(sync_run, pool):
    # A linear fit in three parts of 1, 2 and 3 rows; the gradient of all rows is [1.5, -3].
    inputs = np.array([[1, 0], [2, 1], [0, 1], [3, -1], [1, 1], [-1, 2]], float)
    targets = np.array([1, 2, 0, 1, -1, 3], float)
    clients, _ = sync_run(workers=3, max_grad_norm=0.5)

    def push_rows(n, rows):
        x, y = inputs[rows], targets[rows]
        two = 2 * (x @ np.array([0.5, -0.25]) - y) @ x / len(y)
        return push(clients[n], n, {"w": np.array([*two, 0], np.float32)}, sample_count=len(y))

    parts = [[0], [1, 2], [3, 4, 5]]
    pending = [pool.submit(push_rows, n, rows) for n, rows in enumerate(parts)]

    moved = -pending[0].result().weights.tensors["w"]
    assert moved[:2] == pytest.approx([0.22360673, -0.44721347], abs=1e-6)


def test_stragglers_are_dropped_and_told_which_version_to_go_on_from(sync_run, pool):
    clients, _ = sync_run(workers=3, drop_workers=1)
    results = [pool.submit(push, clients[n], n) for n in range(2)]
    assert [future.result().outcome for future in results] == [APPLIED, APPLIED]

    late = push(clients[2], 2, 100.0)

    assert (late.outcome, late.version, late.staleness) == (LATE, 2, 1)
    np.testing.assert_array_equal(late.weights.tensors["w"], np.full(3, -1.0))
    assert dict(clients[0].info().push_counts) == {"applied": 2, "late": 1}


def test_a_late_worker_takes_part_in_the_next_round(sync_run, pool):
    clients, _ = sync_run(workers=2, drop_workers=1)
    push(clients[0], 0)
    late = push(clients[1], 1)

    result = push(clients[1], 1, 3.0, version=late.version, sequence=2)

    assert (result.outcome, result.version) == (APPLIED, 3)


def test_metrics_are_averaged_by_samples_and_returned_to_all(sync_run, pool):
    clients, _ = sync_run(workers=2)
    pending = [
        pool.submit(push, clients[0], 0, metrics={"kl": 0.1, "own": 5.0}, sample_count=30),
        pool.submit(push, clients[1], 1, metrics={"kl": 0.5}, sample_count=10),
    ]

    metrics = [future.result().metrics for future in pending]

    assert metrics[0] == metrics[1] == {"kl": pytest.approx(0.2), "own": pytest.approx(5.0)}


def test_a_round_closes_at_its_deadline_and_those_absent_are_no_longer_waited_for(sync_run):
    clients, _ = sync_run(workers=3, round_deadline_seconds=0.4)
    start = time.monotonic()

    first = push(clients[0], 0)
    between = time.monotonic()
    second = push(clients[0], 0, version=2, sequence=2)

    assert (first.outcome, second.outcome) == (APPLIED, APPLIED)
    assert between - start >= 0.4
    assert time.monotonic() - between < 0.3, "the others are not waited for a second time"
    assert clients[0].info().worker_count == 1


def test_who_comes_back_is_waited_for_again(sync_run, pool):
    clients, _ = sync_run(workers=2, round_deadline_seconds=0.3)
    push(clients[0], 0)
    late = push(clients[1], 1)
    assert late.outcome is LATE

    alone = pool.submit(push, clients[0], 0, 1.0, version=2, sequence=2)
    wait_until(lambda: staleness_total(clients[1]) == 3)
    assert not alone.done()
    push(clients[1], 1, 3.0, version=2, sequence=2)

    np.testing.assert_array_equal(alone.result().weights.tensors["w"], np.full(3, -3.0))


def test_a_worker_that_leaves_the_run_leaves_the_round(sync_run, pool):
    clients, _ = sync_run(workers=2, round_deadline_seconds=60)
    with RunClient(clients[0].address) as run_client:
        members = [run_client.join(run_pb2.ROLE_ACTOR, wait_seconds=5) for _ in range(2)]
        ids = [member.instance_id for member in members]
        pending = [
            pool.submit(push, client, 0, worker_id=worker)
            for client, worker in zip(clients, ids, strict=True)
        ]
        assert [future.result().version for future in pending] == [2, 2]
        alone = pool.submit(push, clients[0], 0, worker_id=ids[0], version=2, sequence=2)
        wait_until(lambda: staleness_total(clients[1]) == 3)
        assert not alone.done()

        members[1].leave()

        assert alone.result(5).version == 3
        members[0].leave()


def test_a_push_repeated_while_its_round_is_open_counts_once(sync_run, pool):
    clients, _ = sync_run(workers=2)
    with GradientClient(clients[0].address, clients[0].run_id) as other:
        pending = [pool.submit(push, client, 0, 2.0) for client in (clients[0], other)]
        wait_until(lambda: clients[1].info().worker_count == 2)
        push(clients[1], 1, 4.0)

        for future in pending:
            result = future.result()
            assert result.outcome is APPLIED or result.outcome is PushOutcome.DUPLICATE
            np.testing.assert_array_equal(result.weights.tensors["w"], np.full(3, -3.0))


def test_a_worker_that_hangs_up_in_the_middle_of_a_round_has_its_gradient_counted(sync_run, pool):
    clients, params = sync_run(workers=2)
    stop = threading.Event()
    with GradientClient(clients[0].address, clients[0].run_id, stop=stop) as leaving:
        pending = pool.submit(push, leaving, 0, 2.0)
        wait_until(lambda: staleness_total(clients[1]) == 1)
        stop.set()
        with pytest.raises(Exception, match="stopped"):
            pending.result()

    push(clients[1], 1, 4.0)

    np.testing.assert_array_equal(params.get().tensors["w"], np.full(3, -3.0))


def test_an_update_that_would_not_be_finite_is_left_out_and_the_schedule_stays(sync_run):
    clients, params = sync_run(workers=1)
    huge = np.float32(3e38)

    result = push(clients[0], 0, {"w": np.full(3, huge)})

    assert (result.outcome, result.version) == (PushOutcome.SKIPPED, 1)
    assert clients[0].info().update_count == 0
    again = push(clients[0], 0, sequence=2)
    assert (again.outcome, again.version) == (APPLIED, 2)
    np.testing.assert_array_equal(params.get().tensors["w"], np.full(3, -1.0))
