"""Gradients of a run whose weights are split over several parameter servers."""

import functools
import json
import threading
import time
import uuid
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from mycelia.run.v1 import run_pb2
from mycelia_core.clients.gradients import GradientClient, PushOutcome
from mycelia_core.clients.params import ParamClient, WeightWatcher
from mycelia_core.clients.run import RunClient
from mycelia_core.rpc.errors import InvalidArgumentError, StatusError

APPLIED = PushOutcome.APPLIED
SHAPES = {"a": (4, 100), "b": (3, 100), "c": (2, 100), "d": (10,)}
STATISTICS = {
    "statistics/observation/count": np.array(0.0),
    "statistics/observation/mean": np.zeros(3),
    "statistics/observation/m2": np.zeros(3),
}


def filled(value, names=SHAPES):
    return {name: np.full(SHAPES[name], value, np.float32) for name in names}


def random_tensors(rng):
    return {name: rng.normal(size=shape).astype(np.float32) for name, shape in SHAPES.items()}


def values_in(weights):
    return {
        float(value)
        for name, tensor in weights.tensors.items()
        if not name.startswith("statistics/")
        for value in np.unique(tensor)
    }


def wait_until(condition, seconds=20.0):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)


class Run:
    """A run on a parameter server and its shards."""

    def __init__(self, start, start_shard, config, shards):
        self._start_shard = start_shard
        self.server = start()
        self.registry = RunClient(self.server.address)
        self.run_id = self.registry.create_run("test", json.dumps(config)).run_id
        self.shards = [self.start_shard() for _ in range(shards - 1)]
        self.params = ParamClient(self.server.address, self.run_id)
        wait_until(lambda: len(self.living()) == shards - 1)

    def start_shard(self):
        return self._start_shard(self.server.address)

    def living(self):
        members = self.registry.get_run().members
        return [m for m in members if m.role == run_pb2.ROLE_PARAM_SHARD and m.alive]

    def publish(self, tensors):
        self.params.publish(tensors, 0, expected_version=0)
        return self.params.get()

    def client(self, **settings):
        return GradientClient(self.server.address, self.run_id, **settings)

    def close(self):
        self.params.close()
        self.registry.close()


@pytest.fixture
def make_run(config_json):
    """Makes runs, of servers that are started as the caller says."""
    runs = []

    def make(start, start_shard, shards=2, topology="async-gradients", wire="float32", **gradients):
        plain = {"optimizer": "sgd", "learning_rate": 1.0, "max_grad_norm": 0}
        config = json.loads(config_json) | {
            "topology": topology,
            "gradients": plain | gradients,
            "param_server": {"shards": shards, "wire_dtype": wire},
        }
        runs.append(Run(start, start_shard, config, shards))
        return runs[-1]

    yield make
    for run in runs:
        run.close()


@pytest.fixture
def start_run(make_run, start_param_server, start_shard):
    """Starts a run whose servers are threads."""
    return functools.partial(make_run, start_param_server, start_shard)


@pytest.fixture
def start_process_run(make_run, start_param_server_process):
    """Starts a run whose servers are processes, with arguments for the first."""

    def start(shards, arguments, **settings):
        def start_shard(registry):
            return start_param_server_process("--join", registry)

        first = functools.partial(start_param_server_process, *arguments)
        return make_run(first, start_shard, shards, **settings)

    return start


def only_value_in(weights):
    [value] = values_in(weights)
    return value


def push(client, gradient, weights, sequence=1, worker="worker", sample_count=1, **changes):
    return client.push(
        gradient,
        version=weights.version,
        placement=weights.placement,
        worker_id=worker,
        sequence=sequence,
        sample_count=sample_count,
        timeout=20,
        **changes,
    )


@pytest.mark.parametrize("shards", [2, 3])
def test_one_push_moves_the_parts_on_all_servers(start_run, shards):
    run = start_run(shards)
    weights = run.publish({**filled(5.0), **STATISTICS})

    assert len(set(weights.placement.values())) == shards - 1
    with run.client() as client:
        result = push(client, filled(2.0), weights)

    assert (result.outcome, result.version) == (APPLIED, 2)
    assert values_in(result.weights) == {3.0}
    assert values_in(run.params.get()) == {3.0}
    assert result.weights.placement == weights.placement


@pytest.mark.parametrize(
    ("optimizer", "max_grad_norm"), [("sgd", 0.0), ("rmsprop", 0.5), ("adam", 0.5), ("adam", 0.0)]
)
def test_the_updates_are_those_of_one_server(start_run, optimizer, max_grad_norm):
    rng = np.random.default_rng(3)
    first = random_tensors(rng)
    gradients = [random_tensors(rng) for _ in range(4)]
    settings = {
        "optimizer": optimizer,
        "learning_rate": 0.1,
        "max_grad_norm": max_grad_norm,
        "schedule": "linear",
    }
    ends = []
    for shards in (1, 3):
        run = start_run(shards, **settings)
        weights = run.publish(first)
        with run.client() as client:
            for number, gradient in enumerate(gradients, 1):
                weights = push(client, gradient, weights, sequence=number).weights
            ends.append((weights, client.info()))

    (alone, alone_info), (split, split_info) = ends
    assert alone.version == split.version == 5
    assert split_info.gradient_norm == pytest.approx(alone_info.gradient_norm, rel=1e-6)
    for name in SHAPES:
        np.testing.assert_allclose(split.tensors[name], alone.tensors[name], atol=1e-6)


def test_a_round_averages_every_part_over_its_workers(start_run):
    run = start_run(2, "sync-gradients", workers=3)
    weights = run.publish(filled(0.0))
    clients = [run.client() for _ in range(3)]

    with ThreadPoolExecutor(3) as pool:
        pending = [
            pool.submit(push, client, filled(float(n)), weights, worker=f"w{n}", sample_count=n + 1)
            for n, client in enumerate(clients)
        ]
        results = [future.result() for future in pending]

    expected = -(0 * 1 + 1 * 2 + 2 * 3) / 6
    assert {result.outcome for result in results} == {APPLIED}
    for result in results:
        assert only_value_in(result.weights) == pytest.approx(expected)
    for client in clients:
        client.close()


def test_a_wrong_tensor_on_a_shard_is_named_and_nothing_changes(start_run):
    run = start_run(2)
    weights = run.publish(filled(1.0))
    elsewhere = next(iter(weights.placement))
    wrong = {
        "has a NaN": filled(1.0) | {elsewhere: np.full(SHAPES[elsewhere], np.nan, np.float32)},
        "got shape": filled(1.0) | {elsewhere: np.zeros(7, np.float32)},
    }

    with run.client() as client:
        for number, (text, gradient) in enumerate(wrong.items(), 1):
            with pytest.raises(InvalidArgumentError, match=f"{elsewhere}: {text}"):
                push(client, gradient, weights, sequence=number)
        assert run.params.get().version == 1
        assert push(client, filled(1.0), weights, sequence=3).outcome is APPLIED
        wait_until(lambda: client.info().push_counts["not_finite"] == 1)
        assert client.info().push_counts["misshapen_tensor"] == 1


def test_a_gradient_without_its_other_parts_is_refused(start_run):
    run = start_run(2)
    weights = run.publish(filled(1.0))
    own = filled(1.0, [name for name in SHAPES if name not in weights.placement])

    with run.client() as client, pytest.raises(InvalidArgumentError, match="shards: got none"):
        client.push(own, version=1, worker_id="w", sequence=1, sample_count=1, timeout=9)
    assert run.params.get().version == 1


def test_an_infinite_norm_leaves_all_servers_as_they_are(start_run):
    run = start_run(2)
    weights = run.publish(filled(0.0))
    with run.client() as client:
        huge = push(client, filled(3e38), weights)
        fine = push(client, filled(1.0), weights, sequence=2)

    assert huge.outcome is PushOutcome.SKIPPED
    assert fine.version == 2
    assert values_in(fine.weights) == {-1.0}


def test_statistics_and_sixteen_bits_work_with_several_servers(start_run):
    run = start_run(2, wire="bfloat16")
    weights = run.publish({**filled(1.0), **STATISTICS})
    increments = {
        "statistics/observation/count": np.array(2.0),
        "statistics/observation/mean": np.full(3, 7.0),
        "statistics/observation/m2": np.full(3, 4.0),
    }

    with run.client(wire_dtype="bfloat16") as client:
        result = push(client, filled(0.5), weights, statistics=increments)

    assert values_in(result.weights) == {0.5}
    np.testing.assert_array_equal(
        result.weights.tensors["statistics/observation/mean"], np.full(3, 7.0)
    )


class Workers:
    """Workers that push ones, and readers that look whether versions are whole."""

    def __init__(self, run, workers=3):
        self._run, self._count = run, workers
        self.stop = threading.Event()
        self.versions, self.mixed, self.applied = set(), [], 0

    def look(self, weights):
        self.versions.add(weights.version)
        if len(values_in(weights)) != 1:
            self.mixed.append((weights.version, values_in(weights)))

    def push(self):
        name, sequence = uuid.uuid4().hex, 0
        with self._run.client() as client, self._params() as params:
            weights = None
            while not self.stop.is_set():
                try:
                    weights = weights or params.get(timeout=5)
                    sequence += 1
                    result = push(client, filled(1.0), weights, sequence, name)
                except (StatusError, TimeoutError):
                    weights = None
                    time.sleep(0.05)
                    continue
                self.applied += result.outcome is APPLIED
                weights = result.weights
                if weights:
                    self.look(weights)

    def read(self):
        with self._params() as params:
            watcher = WeightWatcher(params)
            while not self.stop.is_set():
                if watcher.latest:
                    self.look(watcher.latest)
                time.sleep(0.001)
            watcher.stop()

    def __enter__(self):
        self._pool = ThreadPoolExecutor(self._count + 2)
        jobs = [self.push] * self._count + [self.read] * 2
        self._ends = [self._pool.submit(job) for job in jobs]
        return self

    def __exit__(self, *error):
        self.stop.set()
        for end in self._ends:
            end.result(30)
        self._pool.shutdown()

    def _params(self):
        return ParamClient(self._run.server.address, self._run.run_id)


@pytest.mark.parametrize("topology", ["async-gradients", "sync-gradients"])
def test_nobody_sees_two_versions_mixed_while_many_push(start_run, topology):
    run = start_run(3, topology, workers=3)
    run.publish(filled(0.0))

    with Workers(run) as workers:
        wait_until(lambda: len(workers.versions) > 100, seconds=30)

    assert not workers.mixed
    newest = run.params.get()
    # Each update takes one away from every weight on every server.
    assert values_in(newest) == {1.0 - newest.version}


def test_a_killed_shard_is_replaced_and_all_go_on_from_what_was_saved(start_process_run):
    run = start_process_run(2, ["--lease-seconds", "2", "--checkpoint-period-seconds", "0.5"])
    run.publish(filled(0.0))

    with Workers(run) as workers:
        wait_until(lambda: len(workers.versions) > 50)
        time.sleep(1.0)
        run.shards[0].stop()
        time.sleep(0.5)
        before = max(workers.versions)
        run.start_shard()
        wait_until(lambda: max(workers.versions) > before + 50)

    assert not workers.mixed
    newest = run.params.get()
    # What was made after the last save is lost, on both servers; the versions go on.
    assert 1.0 - newest.version <= only_value_in(newest) < -50


def test_a_killed_first_server_comes_back_with_the_parts_of_all(
    start_process_run, start_param_server_process, tmp_path
):
    arguments = ["--checkpoint-dir", str(tmp_path), "--checkpoint-period-seconds", "0.3"]
    run = start_process_run(2, arguments, optimizer="adam", learning_rate=0.01)
    weights = run.publish(filled(0.0))
    with run.client() as client:
        for sequence in range(1, 6):
            weights = push(client, filled(1.0), weights, sequence).weights
    wait_until(lambda: list(tmp_path.glob("version-000000006/state.json")))
    expected = only_value_in(weights)

    run.server.process.kill()
    run.server.process.wait()
    again = start_param_server_process("--bind", run.server.address, *arguments)
    assert again.address == run.server.address
    wait_until(lambda: (w := run.params.get()) is not None and w.version == 6)

    weights = run.params.get()
    assert only_value_in(weights) == expected
    with run.client() as client:
        result = push(client, filled(1.0), weights, 6)
        assert result.version == 7
        assert client.info().update_count == 6
    assert only_value_in(result.weights) == pytest.approx(expected * 6 / 5, rel=1e-3)


@pytest.mark.parametrize(("before", "after"), [(1, 3), (3, 1)])
def test_a_checkpoint_serves_any_number_of_servers(
    start_param_server, start_shard, make_run, tmp_path, before, after
):
    start = functools.partial(
        start_param_server, checkpoint_dir=tmp_path, checkpoint_period_seconds=1000
    )
    rng = np.random.default_rng(5)
    first, *gradients = (random_tensors(rng) for _ in range(4))
    run = make_run(start, start_shard, before, optimizer="adam", learning_rate=0.01)
    weights = run.publish(first)
    with run.client() as client:
        for sequence, gradient in enumerate(gradients[:2], 1):
            weights = push(client, gradient, weights, sequence).weights
        run.server.stop()  # which saves
    for shard in run.shards:
        shard.stop()
    change_config(tmp_path / "registry.json", shards=after)

    server = start()
    for _ in range(after - 1):
        start_shard(server.address)
    with (
        ParamClient(server.address, run.run_id) as params,
        GradientClient(server.address, run.run_id) as client,
    ):
        wait_until(lambda: (w := params.get()) is not None and w.version == 3)
        result = push(client, gradients[2], params.get(), 3)

    expected = one_server_after(make_run, start_param_server, start_shard, first, gradients)
    for name in SHAPES:
        np.testing.assert_allclose(result.weights.tensors[name], expected[name], atol=1e-6)


def one_server_after(make_run, start, start_shard, first, gradients):
    """Returns the weights after all gradients have been applied by a single server."""
    run = make_run(start, start_shard, 1, optimizer="adam", learning_rate=0.01)
    weights = run.publish(first)
    with run.client() as client:
        for sequence, gradient in enumerate(gradients, 1):
            weights = push(client, gradient, weights, sequence).weights
    return weights.tensors


def change_config(path, **param_server):
    saved = json.loads(path.read_text())
    config = json.loads(saved["run"]["config_json"])
    config["param_server"] |= param_server
    saved["run"]["config_json"] = json.dumps(config)
    path.write_text(json.dumps(saved))


def test_the_last_weights_are_saved_before_the_shards_leave(
    start_param_server, start_shard, make_run, tmp_path
):
    start = functools.partial(
        start_param_server, checkpoint_dir=tmp_path, checkpoint_period_seconds=1000
    )
    run = make_run(start, start_shard, 2)
    weights = run.publish(filled(0.0))
    with run.client() as client:
        push(client, filled(1.0), weights)

    run.registry.finish_run(run_pb2.OUTCOME_STOPPED)

    wait_until(lambda: not run.living())
    assert (tmp_path / "version-000000002" / "state.json").exists()
