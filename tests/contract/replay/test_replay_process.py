"""The replay service as it really runs: `python -m mycelia_replay` in a run."""

import signal
import socket
import subprocess
import sys
import time

import pytest

from mycelia.run.v1 import run_pb2
from mycelia_core.clients.replay import ReplayClient
from mycelia_core.clients.run import RunClient

CONFIG = """{
  "name": "test", "env": {"id": "CartPole-v1"}, "algorithm": {"name": "dqn"},
  "learner": {"batch_size": 8},
  "replay": {"capacity_rows": 500, "samples_per_insert": 4.0, "min_items_to_sample": 20,
             "window": {"bootstrap_rows": 1}, %s}
}"""


@pytest.fixture
def start_replay():
    processes = []

    def start(*arguments: str) -> subprocess.Popen:
        processes.append(
            subprocess.Popen(
                [sys.executable, "-m", "mycelia_replay", *arguments],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
        return processes[-1]

    yield start
    for process in processes:
        if process.poll() is None:
            process.kill()
        process.communicate(timeout=10)


@pytest.fixture
def registry(param_server):
    with RunClient(param_server.address) as client:
        yield client


def create_run(registry: RunClient, more: str = '"sampler": "uniform"') -> str:
    return registry.create_run("test", CONFIG % more).run_id


def replay_member(registry: RunClient) -> run_pb2.Member:
    return registry.wait_for_member(run_pb2.ROLE_REPLAY, timeout=20)


def write_rows(client: ReplayClient, signature, columns_of, count: int) -> None:
    columns = columns_of(count)
    with client.writer("train", ["a"], signature) as writer:
        for i in range(count):
            writer.append({name: values[i : i + 1] for name, values in columns.items()})


def test_serves_a_run_from_its_registry_and_leaves_on_a_signal(
    registry, start_replay, signature, columns_of
):
    process = start_replay("--join", registry.address)
    assert process.stdout.readline().startswith("ready address=127.0.0.1:")
    run_id = create_run(registry)
    address = replay_member(registry).address
    with registry.join(run_pb2.ROLE_ACTOR, signature=signature):
        with ReplayClient(address, run_id) as client:
            write_rows(client, signature, columns_of, 21)
            with client.sampler("train", 8, prefetch=1) as sampler:
                assert sampler.next(timeout=10).columns["observation"].shape == (2, 8, 4)
            (info,) = client.info()
        assert info.rate_limiter.error_buffer == 16
        deadline = time.monotonic() + 10
        while replay_member(registry).counters.get("inserted_items") != 20:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        counters = replay_member(registry).counters

    start = time.monotonic()
    process.send_signal(signal.SIGTERM)
    process.send_signal(signal.SIGTERM)

    assert process.wait(10) == 0
    assert time.monotonic() - start < 3
    assert process.stdout.read() == ""
    assert counters["replay_rows"] == 21
    assert counters["capacity_rows"] == 500
    assert counters["samples_per_insert"] == pytest.approx(8 / 20)
    assert not [m for m in registry.get_run().members if m.alive and m.role == run_pb2.ROLE_REPLAY]


def test_leaves_when_the_run_finishes(registry, start_replay, signature):
    create_run(registry)
    process = start_replay("--join", registry.address)
    with registry.join(run_pb2.ROLE_ACTOR, signature=signature):
        replay_member(registry)
        registry.finish_run(run_pb2.OUTCOME_STEP_LIMIT)

        assert process.wait(10) == 0


def test_leaves_on_a_signal_while_it_waits_for_the_registry(start_replay):
    process = start_replay("--join", "127.0.0.1:1")
    process.stdout.readline()

    process.send_signal(signal.SIGINT)

    assert process.wait(10) == 0


def test_settings_that_cannot_work_end_it_with_one_line(registry, start_replay, signature):
    create_run(registry, '"error_buffer": 2.0')
    process = start_replay("--join", registry.address)
    with registry.join(run_pb2.ROLE_ACTOR, signature=signature):
        _, errors = process.communicate(timeout=20)

    assert process.returncode == 1
    assert errors.splitlines()[-1] == (
        "replay: error_buffer=2.0 is below one insert's worth of samples (4.0): "
        "inserts and samples would wait for each other"
    )
    assert "Traceback" not in errors


def test_a_port_in_use_ends_it_with_one_line_that_names_it(registry, start_replay):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        process = start_replay("--join", registry.address, "--bind", address)
        _, errors = process.communicate(timeout=20)

    assert process.returncode == 1
    assert f"replay: cannot listen on {address}" in errors.splitlines()[-1]
    assert "Traceback" not in errors


def test_arguments_that_contradict_one_another_are_exit_code_two(start_replay):
    process = start_replay("--join", "127.0.0.1:1", "--table", "name=train")
    _, errors = process.communicate(timeout=20)

    assert process.returncode == 2
    assert "--join" in errors


def test_imports_neither_torch_nor_gymnasium():
    code = "import mycelia_replay.main, sys; print({'torch', 'gymnasium'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "set()"
