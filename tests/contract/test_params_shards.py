"""Weights that are split over several parameter servers: whole versions, whatever happens."""

import itertools
import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from mycelia.params.v1 import params_pb2
from mycelia.run.v1 import run_pb2
from mycelia_core.clients.params import ParamClient, WeightWatcher
from mycelia_core.clients.run import RunClient
from mycelia_core.rpc.errors import AbortedError, NotFoundError, UnavailableError

WRITERS = 2
READERS = 2


def filled(value, size=1000):
    return {f"layer.{n}": np.full((n + 1, size), value, np.float32) for n in range(5)}


def values_in(weights):
    return {float(value) for array in weights.tensors.values() for value in np.unique(array)}


def wait_until(condition, seconds=15.0):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.01)


def shard_members(client):
    members = client.get_run().members
    return [m for m in members if m.role == run_pb2.ROLE_PARAM_SHARD and m.alive and m.address]


@pytest.fixture
def sharded(start_param_server_process, config_json):
    """Starts a parameter server with a run over so many shards; returns clients and processes."""
    opened = []

    def start(shards=2, *arguments, **section):
        server = start_param_server_process(*arguments)
        run_client = RunClient(server.address)
        config = json.loads(config_json) | {"param_server": {"shards": shards, **section}}
        run = run_client.create_run("test", json.dumps(config))
        others = [start_param_server_process("--join", server.address) for _ in range(shards - 1)]
        wait_until(lambda: len(shard_members(run_client)) == shards - 1)
        params = ParamClient(server.address, run.run_id)
        opened.extend([params, run_client])
        return params, run_client, server, others

    yield start
    for client in opened:
        client.close()


def header_of(params):
    request = params_pb2.GetWeightsRequest(run_id=params.run_id)
    return next(iter(params._stub.GetWeights(request, timeout=5))).header


def test_weights_are_split_by_bytes_and_come_back_whole(sharded):
    params, *_ = sharded(3)
    published = {**filled(1.0), "count": np.array([7], np.int64)}

    assert params.publish(published, learner_step=5, expected_version=0) == 1
    weights = params.get()

    assert weights.version == 1
    assert weights.learner_step == 5
    assert set(weights.tensors) == set(published)
    for name, array in published.items():
        np.testing.assert_array_equal(weights.tensors[name], array)
    header = header_of(params)
    assert len(header.shards) == 2
    # 15 rows in all: 5 each, and the count where it is the first with 5.
    assert [list(spec.shape) for spec in header.tensors] == [[5, 1000], [1]]
    assert params.get(newer_than=1) is None


def test_sixteen_bits_are_widened_on_every_shard(sharded):
    params, *_ = sharded(2)

    params.publish(filled(0.5), 0, 0, wire_dtype="bfloat16")

    weights = params.get()
    assert values_in(weights) == {0.5}
    assert {array.dtype for array in weights.tensors.values()} == {np.dtype(np.float32)}


class Traffic:
    """Writers and readers of one run's weights, all at once, and what they saw."""

    def __init__(self, params):
        self._address, self._run_id = params.address, params.run_id
        self._stop = threading.Event()
        self._numbers = itertools.count(1)
        self.contents, self.seen, self.mixed = {}, [], []

    def run(self, seconds):
        jobs = [self._write] * WRITERS + [self._pull] * READERS + [self._watch] * READERS
        with ThreadPoolExecutor(len(jobs)) as threads:
            ends = [threads.submit(job) for job in jobs]
            time.sleep(seconds)
            self._stop.set()
            for end in ends:
                end.result(20)

    def _client(self):
        return ParamClient(self._address, self._run_id)

    def _write(self):
        with self._client() as client:
            version = 0
            while not self._stop.is_set():
                # Every attempt has a number of its own, so that the loser's part would show.
                number = float(next(self._numbers))
                try:
                    version = client.publish(filled(number), 0, expected_version=version)
                    self.contents[version] = number
                except AbortedError:
                    newest = client.get(newer_than=version)
                    version = newest.version if newest else version

    def _pull(self):
        with self._client() as client:
            while not self._stop.is_set():
                if weights := client.get():
                    self._look(weights)

    def _watch(self):
        with self._client() as client:
            watcher, version = WeightWatcher(client), 0
            while not self._stop.is_set():
                if watcher.latest and watcher.latest.version != version:
                    weights = watcher.latest
                    version = weights.version
                    self._look(weights)
                time.sleep(0.0005)
            watcher.stop()

    def _look(self, weights):
        values = values_in(weights)
        self.seen.append((weights.version, max(values)))
        if len(values) != 1:
            self.mixed.append((weights.version, values))


def test_nobody_sees_two_versions_mixed_while_several_publish(sharded):
    params, *_ = sharded(2)
    traffic = Traffic(params)

    traffic.run(seconds=4.0)

    assert not traffic.mixed
    assert len(traffic.contents) > 50
    assert len({version for version, _ in traffic.seen}) > 50
    assert all(traffic.contents.get(version, value) == value for version, value in traffic.seen)


def test_a_lost_race_leaves_the_winners_version_whole(sharded):
    params, *_ = sharded(2)
    params.publish(filled(1.0), 0, expected_version=0)
    params.publish(filled(2.0), 0, expected_version=1)

    with pytest.raises(AbortedError):
        params.publish(filled(3.0), 0, expected_version=1)

    assert values_in(params.get()) == {2.0}
    assert params.get().version == 2


def test_a_version_that_was_pulled_can_be_had_again(sharded):
    params, *_ = sharded(2)
    params.publish(filled(1.0), 0, expected_version=0)
    params.get()
    for version in range(1, 8):
        params.publish(filled(version + 1.0), 0, expected_version=version)

    assert values_in(params.get(version=1)) == {1.0}
    with pytest.raises(NotFoundError):
        params.get(version=3)


def test_a_killed_shard_is_named_in_time_and_the_next_publish_heals(
    sharded, start_param_server_process
):
    params, _, server, (shard,) = sharded(2, "--lease-seconds", "2")
    watcher = WeightWatcher(params)
    params.publish(filled(1.0), 0, expected_version=0)
    wait_until(lambda: watcher.latest is not None)
    shard.stop()
    start = time.monotonic()

    with pytest.raises(UnavailableError, match=f"shard {shard.address}"):
        params.get(timeout=10)
    with pytest.raises(TimeoutError, match="shard"):
        params.publish(filled(2.0), 0, expected_version=1, timeout=3)
    assert time.monotonic() - start < 12
    assert watcher.latest.version == 1

    start_param_server_process("--join", server.address)
    assert params.publish(filled(2.0), 0, expected_version=1, timeout=10) == 2
    assert values_in(params.get()) == {2.0}
    wait_until(lambda: watcher.latest.version == 2)
    assert values_in(watcher.latest) == {2.0}
    watcher.stop()


def test_publishing_waits_for_shards_and_says_so(start_param_server, config_json):
    server = start_param_server()
    config = json.loads(config_json) | {"param_server": {"shards": 3}}
    with RunClient(server.address) as run_client:
        run = run_client.create_run("test", json.dumps(config))
        with (
            ParamClient(server.address, run.run_id) as params,
            pytest.raises(TimeoutError, match="0 of 2 further shards"),
        ):
            params.publish(filled(1.0), 0, expected_version=0, timeout=0.5)


def test_a_checkpoint_holds_all_parts(sharded, start_param_server_process, tmp_path):
    params, _, server, (shard,) = sharded(2, "--checkpoint-dir", str(tmp_path))
    params.publish(filled(1.0), 3, expected_version=0)
    wait_until(lambda: list(tmp_path.glob("version-*/state.json")))
    server.process.kill()
    server.process.wait()
    shard.stop()

    server = start_param_server_process("--checkpoint-dir", str(tmp_path))
    with ParamClient(server.address, params.run_id) as again:
        weights = again.get()
        assert weights.version == 1
        assert weights.learner_step == 3
        assert values_in(weights) == {1.0}
        start_param_server_process("--join", server.address)
        assert again.publish(filled(2.0), 4, expected_version=1) == 2
        assert values_in(again.get()) == {2.0}


def test_a_shard_leaves_when_the_run_has_finished(sharded):
    _, run_client, _, (shard,) = sharded(2)

    run_client.finish_run(run_pb2.OUTCOME_STOPPED)

    assert shard.process.wait(10) == 0
