"""Central inference as it really runs: actors without weights, a service that is killed."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from mycelia.run.v1 import run_pb2
from mycelia_core.clients.params import ParamClient
from mycelia_core.clients.run import RunClient
from mycelia_core.config import (
    ActorConfig,
    EnvConfig,
    InferenceConfig,
    ReplayConfig,
    RunConfig,
    WindowConfig,
)

CONFIG = RunConfig(
    name="test",
    env=EnvConfig(id="CartPole-v1"),
    actor=ActorConfig(count=1, envs_per_actor=8, inference="central"),
    inference=InferenceConfig(device="cpu", timeout_seconds=1.0),
    replay=ReplayConfig(capacity_rows=200_000, window=WindowConfig(bootstrap_rows=3)),
    algorithm={"name": "dqn", "gamma": 0.99, "n_step": 3},
)
TENSORS = {
    "q.weight": np.array([[0, 0, 0, 0], [0, 0, 1, 0.25]], np.float32),
    "q.bias": np.zeros(2, np.float32),
}

Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts services as processes, and kills those that are left after the test."""
    processes: list[subprocess.Popen[str]] = []

    def start_one(module: str, *arguments: str) -> subprocess.Popen[str]:
        processes.append(
            subprocess.Popen(
                [sys.executable, "-m", module, *arguments],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
        return processes[-1]

    yield start_one
    for process in processes:
        process.kill()
        process.communicate(timeout=10)


@pytest.fixture
def address(start: Start) -> str:
    server = start("mycelia_param_server", "--bind", "127.0.0.1:0")
    return server.stdout.readline().strip().removeprefix("ready address=")


@pytest.fixture
def client(address: str) -> Iterator[RunClient]:
    with RunClient(address) as client:
        yield client


def wait_until(condition: Callable[[], bool], seconds: float = 40.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.05)


def counters(client: RunClient, role: int) -> dict[str, float]:
    members = [m for m in client.get_run().members if m.role == role and m.alive]
    return dict(max(members, key=lambda m: m.index).counters) if members else {}


def test_an_actor_outlives_its_inference_service_and_goes_on_with_the_next(start, address, client):
    run = client.create_run("test", CONFIG.model_dump_json())
    start("mycelia_replay", "--join", address)
    inference = start("mycelia_actor.inference", "--join", address)
    actor = start("mycelia_actor", "--join", address)
    with ParamClient(address, run.run_id) as params:
        params.publish(TENSORS, 1, expected_version=0)
    wait_until(lambda: counters(client, run_pb2.ROLE_ACTOR).get("policy_version") == 1)

    inference.kill()
    time.sleep(0.5)
    stopped_at = client.get_run().progress.env_steps
    time.sleep(0.5)
    waited_at = client.get_run().progress.env_steps
    again = start("mycelia_actor.inference", "--join", address)
    wait_until(lambda: client.get_run().progress.env_steps > waited_at + 1000)

    # A heartbeat may still have brought what was done before.
    assert waited_at - stopped_at < 10_000
    assert actor.poll() is None
    actor.send_signal(signal.SIGTERM)
    assert actor.wait(10) == 0, actor.stderr.read()
    again.send_signal(signal.SIGTERM)
    assert again.wait(10) == 0, again.stderr.read()


def test_an_actor_without_a_service_leaves_when_it_is_told(start, address, client):
    client.create_run("test", CONFIG.model_dump_json())
    start("mycelia_replay", "--join", address)
    actor = start("mycelia_actor", "--join", address)
    wait_until(lambda: bool(client.get_run().members))
    wait_until(lambda: any(m.role == run_pb2.ROLE_ACTOR for m in client.get_run().members))
    time.sleep(0.5)
    start_time = time.monotonic()

    actor.send_signal(signal.SIGTERM)

    assert actor.wait(10) == 0, actor.stderr.read()
    assert time.monotonic() - start_time < 5


def test_the_service_ends_with_the_run_and_without_one_when_it_is_told(start, address, client):
    waiting = start("mycelia_actor.inference", "--join", address)
    assert waiting.stdout.readline().startswith("ready address=127.0.0.1:")
    waiting.send_signal(signal.SIGTERM)
    assert waiting.wait(10) == 0, waiting.stderr.read()

    client.create_run("test", CONFIG.model_dump_json())
    start("mycelia_replay", "--join", address)
    inference = start("mycelia_actor.inference", "--join", address)
    actor = start("mycelia_actor", "--join", address)
    wait_until(lambda: counters(client, run_pb2.ROLE_INFERENCE).get("inferred_rows", 0) > 0)
    client.finish_run(run_pb2.OUTCOME_STOPPED)

    assert inference.wait(20) == 0, inference.stderr.read()
    assert actor.wait(20) == 0, actor.stderr.read()


@pytest.mark.parametrize("setting", ["actor.inference=central", "actor.device=cuda"])
def test_workers_that_compute_gradients_cannot_be_told_to_ask_elsewhere(mycelia, setting):
    command = mycelia("config", "a3c-cartpole", setting)

    assert command.end() == 2
    assert f"{setting} needs topology=replay" in command.text


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_apex_solves_cartpole_with_central_inference(mycelia):
    command = mycelia("train", "apex-cartpole", "actor.inference=central", "--json")

    assert command.end(280) == 0, command.text
    result = json.loads(command.lines[-1])
    assert result["outcome"] == "solved", command.text
    logs = next(command.folder.glob("runs/*/logs"))
    assert "evaluates the policy" in (logs / "inference-0.log").read_text()
