"""Watching weights: the latest wins, memory stays flat, and every wait ends."""

import threading
import time
from pathlib import Path

import numpy as np
import pytest

from mycelia.run.v1 import run_pb2
from mycelia_core.clients.params import ParamClient, WeightWatcher
from mycelia_core.clients.run import RunClient
from mycelia_core.rpc.errors import FailedPreconditionError, UnavailableError

MEBIBYTE = 1024 * 1024


def tensors(fill, size=10):
    return {"w": np.full(size, fill, np.float32)}


def wait_until(condition, seconds=10.0):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.01)


def test_a_watcher_gets_what_is_there_and_what_comes(param_client):
    for version in range(5):
        param_client.publish(tensors(version + 1), version, expected_version=version)
    watcher = WeightWatcher(param_client)
    wait_until(lambda: watcher.latest is not None)
    assert watcher.latest.version == 5

    param_client.publish(tensors(6.0), 6, expected_version=5)
    wait_until(lambda: watcher.latest.version == 6)
    time.sleep(0.2)

    assert (watcher.latest.tensors["w"] == 6.0).all()
    assert watcher.received_count == 2, "each version comes once, and old ones never"
    watcher.stop()


def test_a_watch_gives_only_what_is_newer(param_client):
    param_client.publish(tensors(1.0), 1, expected_version=0)
    stream = param_client.watch(newer_than=1)
    threading.Timer(0.2, param_client.publish, (tensors(2.0), 2, 1)).start()

    assert next(iter(stream)).version == 2

    stream.cancel()


def test_a_slow_reader_skips_versions_and_ends_with_the_newest(param_client):
    # 4 MiB: far more than lies in the buffers between server and reader.
    stream = param_client.watch()
    versions = []
    reading = threading.Event()

    def read():
        for weights in stream:
            versions.append(weights.version)
            assert (weights.tensors["w"] == weights.version).all()
            if weights.version == 1:
                reading.wait(20)
            if weights.version == 40:
                return

    reader = threading.Thread(target=read)
    reader.start()
    for version in range(40):
        param_client.publish(tensors(version + 1, MEBIBYTE), version, expected_version=version)
        wait_until(lambda: versions)
    reading.set()
    reader.join(20)

    assert not reader.is_alive()
    assert versions[0] == 1
    assert versions[-1] == 40
    assert versions == sorted(set(versions))
    assert len(versions) <= 4, versions
    stream.cancel()


def test_memory_stays_flat_over_many_publishes_with_slow_and_fast_readers(
    start_param_server_process, config_json
):
    server = start_param_server_process("--log-level", "warning")
    status = Path(f"/proc/{server.process.pid}/status")
    if not status.exists():
        pytest.skip("needs /proc")

    def resident_mebibytes():
        line = next(li for li in status.read_text().splitlines() if li.startswith("VmRSS"))
        return int(line.split()[1]) / 1024

    with RunClient(server.address) as runs:
        run = runs.create_run("test", config_json)
    with ParamClient(server.address, run.run_id) as client:
        fast = [WeightWatcher(client) for _ in range(2)]
        slow = client.watch()
        slow_versions = iter(slow)
        samples = []
        for version in range(1000):
            client.publish(tensors(version + 1, MEBIBYTE // 8), version, expected_version=version)
            if version == 0:
                assert next(slow_versions).version == 1
            if version % 100 == 99:
                samples.append(resident_mebibytes())
        caught_up = [weights.version for weights in take_until(slow_versions, 1000)]
        wait_until(lambda: all(w.latest and w.latest.version == 1000 for w in fast))

        # 500 MiB went in. Each version is 0.5 MiB.
        assert max(samples) - samples[0] < 20, samples
        assert caught_up[-1] == 1000
        assert len(caught_up) < 100, caught_up
        for watcher in fast:
            watcher.stop()
        slow.cancel()


def take_until(versions, last):
    for weights in versions:
        yield weights
        if weights.version == last:
            return


def test_a_watcher_comes_back_when_the_server_does(start_param_server, config_json):
    first = start_param_server()
    with RunClient(first.address) as runs:
        run = runs.create_run("test", config_json)
    with ParamClient(first.address, run.run_id) as client:
        client.publish(tensors(1.0), 1, expected_version=0)
        watcher = WeightWatcher(client)
        wait_until(lambda: watcher.latest is not None)
        first.stop()
        time.sleep(0.3)
        assert watcher.latest.version == 1
        assert not watcher.failed

        # A server that comes back without the run ends the watch for good.
        start_param_server(first.address)
        wait_until(lambda: watcher.failed)

        watcher.stop()


def test_a_watcher_stops_at_once_whether_or_not_the_server_is_there(param_server, param_client):
    idle = WeightWatcher(param_client)
    time.sleep(0.2)
    assert seconds_of(idle.stop) < 1

    cut_off = WeightWatcher(param_client)
    param_server.stop()
    time.sleep(0.5)
    assert seconds_of(cut_off.stop) < 1


def seconds_of(action):
    start = time.monotonic()
    action()
    return time.monotonic() - start


def test_a_server_stops_in_time_though_watches_are_open(param_server, param_client):
    streams = [param_client.watch() for _ in range(5)]
    ends = []

    def follow(stream):
        try:
            next(iter(stream))
        except UnavailableError as error:
            ends.append(str(error))

    threads = [threading.Thread(target=follow, args=(stream,)) for stream in streams]
    for thread in threads:
        thread.start()
    time.sleep(0.3)

    # Far less than the grace: the server ends the watches itself.
    assert seconds_of(lambda: param_server.stop(grace_seconds=8)) < 2

    for thread in threads:
        thread.join(5)
    assert len(ends) == 5


def test_a_watch_ends_when_another_run_takes_the_place(run_client, param_client, config_json):
    stream = param_client.watch()
    run_client.finish_run(run_pb2.OUTCOME_STOPPED)
    threading.Timer(0.2, run_client.create_run, ("test", config_json)).start()

    with pytest.raises(FailedPreconditionError, match="this server's run is"):
        next(iter(stream))


def test_getting_and_publishing_end_by_their_deadline_when_the_server_is_gone(
    param_server, param_client
):
    param_server.stop()

    with pytest.raises((UnavailableError, TimeoutError)):
        param_client.get(timeout=1.0)
    start = time.monotonic()
    with pytest.raises(TimeoutError, match="the parameter server at"):
        param_client.publish(tensors(1.0), 1, expected_version=0, timeout=1.0)
    assert time.monotonic() - start < 3


def test_publishing_survives_a_server_that_is_away_for_a_moment(
    param_server, param_client, start_param_server, config_json
):
    param_server.stop()
    stop = threading.Event()
    outcome = []

    def publish():
        try:
            outcome.append(param_client.publish(tensors(1.0), 1, 0, timeout=20, stop=stop))
        except FailedPreconditionError:
            outcome.append("refused")

    thread = threading.Thread(target=publish)
    thread.start()
    time.sleep(0.3)
    # It answers again, if only to say that it does not know the run.
    start_param_server(param_server.address)
    thread.join(15)

    assert outcome == ["refused"]
