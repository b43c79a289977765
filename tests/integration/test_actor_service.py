"""The actor service as it really runs: processes, a parameter server, a replay server."""

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing

import numpy as np
import pytest
import torch

from mycelia.run.v1 import run_pb2
from mycelia_actor.policies.device import find_device
from mycelia_core.clients.params import ParamClient
from mycelia_core.clients.replay import ReplayClient
from mycelia_core.clients.run import RunClient
from mycelia_core.config import (
    ActorConfig,
    EnvConfig,
    EvaluationConfig,
    ReplayConfig,
    RunConfig,
    WindowConfig,
)

CONFIG = RunConfig(
    name="test",
    env=EnvConfig(id="CartPole-v1"),
    actor=ActorConfig(count=1, envs_per_actor=8),
    replay=ReplayConfig(capacity_rows=200_000, window=WindowConfig(bootstrap_rows=3)),
    algorithm={"name": "dqn", "gamma": 0.99, "n_step": 3},
    evaluation=EvaluationConfig(episodes=20, period_seconds=0.1),
)

BY_HAND = {
    "q.weight": np.array([[0, 0, 0, 0], [0, 0, 1, 0.25]], np.float32),
    "q.bias": np.zeros(2, np.float32),
}
"""Q(right) - Q(left) = theta + 0.25 * theta_dot: holds CartPole's pole up for ever."""

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
    """The address of a parameter server without a run."""
    server = start("mycelia_param_server", "--bind", "127.0.0.1:0")
    return server.stdout.readline().strip().removeprefix("ready address=")


@pytest.fixture
def client(address: str) -> Iterator[RunClient]:
    with RunClient(address) as client:
        yield client


def wait_until(condition: Callable[[], bool], seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)


def stop_and_time(process: subprocess.Popen[str]) -> float:
    start_time = time.monotonic()
    process.send_signal(signal.SIGTERM)
    assert process.wait(10) == 0, process.stderr.read()
    return time.monotonic() - start_time


def actor_counters(client: RunClient) -> dict[str, float]:
    for member in client.get_run().members:
        if member.role == run_pb2.ROLE_ACTOR:
            return dict(member.counters)
    return {}


def test_every_step_of_an_actor_reaches_the_table_and_nothing_else_does(start, address, client):
    actor = start("mycelia_actor", "--join", address)
    start("mycelia_replay", "--join", address)
    run = client.create_run("test", CONFIG.model_dump_json())

    with ExitStack() as stack:
        member = client.wait_for_member(run_pb2.ROLE_REPLAY, 20)
        replay = stack.enter_context(ReplayClient(member.address, run.run_id))
        params = stack.enter_context(ParamClient(address, run.run_id))
        wait_until(lambda: actor_counters(client).get("env_steps", 0) > 500)
        assert actor_counters(client)["policy_version"] == 0
        params.publish(BY_HAND, 0, 0)
        wait_until(lambda: actor_counters(client)["policy_version"] == 1)
        before = actor_counters(client)["env_steps"]
        wait_until(lambda: actor_counters(client)["env_steps"] > before + 5000)

        assert stop_and_time(actor) < 2.0

        (table,) = replay.info()
        progress = client.get_run().progress
        # An episode of T steps is T+1 rows, and its end is reported with it.
        assert table.inserted_row_count == progress.env_steps + progress.episode_count
        assert table.missing_row_count == table.duplicate_row_count == 0
        assert table.refused_request_count == 0
        sampler = replay.sampler("train", 256)
        batch = sampler.next(timeout=10)
        sampler.close()
        assert set(np.unique(batch.columns["policy_version"])) <= {0, 1}
        assert np.isfinite(batch.probabilities).all()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_an_actor_finds_a_replay_service_that_was_started_anew_elsewhere(
    start, address, client, tmp_path, number
):
    keeps = ("--checkpoint-dir", str(tmp_path))
    actor = start("mycelia_actor", "--join", address)
    first = start("mycelia_replay", "--join", address, *keeps)
    run = client.create_run("test", CONFIG.model_dump_json())
    before = client.wait_for_member(run_pb2.ROLE_REPLAY, 20)
    wait_until(lambda: inserted_rows(before.address, run.run_id) > 100)
    where = lambda: replay_address(client) or None  # noqa: E731

    with ExitStack() as stack:
        replay = stack.enter_context(ReplayClient(before.address, run.run_id, locate=where))
        sampler = stack.enter_context(closing(replay.sampler("train", 32)))
        sampler.next(timeout=10)

        first.send_signal(number)
        first.wait(10)
        start("mycelia_replay", "--join", address, *keeps)

        wait_until(lambda: where() not in (None, before.address))
        wait_until(lambda: inserted_rows(where(), run.run_id) > 500)
        steps = actor_counters(client)["env_steps"]
        wait_until(lambda: actor_counters(client)["env_steps"] > steps)
        assert actor.poll() is None
        for _ in range(20):  # more than were fetched ahead
            sampler.next(timeout=10)
        assert replay.address == where()

        assert stop_and_time(actor) < 2.0

        (table,) = replay.info()
        progress = client.get_run().progress
        # What the server did not save when it was killed is counted; nothing else is missing.
        row_count = table.inserted_row_count + table.missing_row_count
        assert row_count == progress.env_steps + progress.episode_count
        assert number == signal.SIGKILL or table.missing_row_count == 0


def replay_address(client: RunClient) -> str:
    for member in client.get_run().members:
        if member.role == run_pb2.ROLE_REPLAY and member.alive:
            return member.address
    return ""


def inserted_rows(address: str, run_id: str) -> int:
    with ReplayClient(address, run_id) as replay:
        return sum(table.inserted_row_count for table in replay.info())


def test_an_actor_ends_with_its_run(start, address, client):
    actor = start("mycelia_actor", "--join", address)
    start("mycelia_replay", "--join", address)
    client.create_run("test", CONFIG.model_dump_json())
    wait_until(lambda: actor_counters(client).get("env_steps", 0) > 0)

    client.finish_run(run_pb2.OUTCOME_STOPPED)

    assert actor.wait(5) == 0
    late = start("mycelia_actor", "--join", address)
    assert late.wait(10) == 0


def test_an_actor_waits_for_replay_and_still_stops_at_once(start, address, client):
    actor = start("mycelia_actor", "--join", address)
    client.create_run("test", CONFIG.model_dump_json())
    client.wait_for_signature(20)

    assert stop_and_time(actor) < 2.0


def test_an_actor_that_replay_holds_back_waits_says_so_and_stops_at_once(start, address, client):
    limited = CONFIG.replay.model_copy(
        update={"samples_per_insert": 8.0, "min_items_to_sample": 500, "error_buffer": 1000.0}
    )
    actors = CONFIG.actor.model_copy(update={"insert_timeout_seconds": 0.5})
    config = CONFIG.model_copy(update={"replay": limited, "actor": actors})
    actor = start("mycelia_actor", "--join", address)
    start("mycelia_replay", "--join", address)
    client.create_run("test", config.model_dump_json())
    # Nobody samples, so the table closes soon; what the writer holds is bounded.
    wait_until(lambda: actor_counters(client).get("env_steps", 0) > 500)
    time.sleep(1.5)
    held_back = actor_counters(client)["env_steps"]
    time.sleep(1.0)

    assert actor_counters(client)["env_steps"] == held_back < 3000
    assert stop_and_time(actor) < 2.0
    assert "replay has taken no rows for 0.5 s, waiting on" in actor.stderr.read()


def test_an_evaluator_reports_the_true_returns_of_the_newest_weights(start, address, client):
    evaluator = start("mycelia_actor", "--join", address, "--role", "evaluator")
    run = client.create_run("test", CONFIG.model_dump_json())
    with ParamClient(address, run.run_id) as params:
        params.publish(BY_HAND, 40, 0)
        wait_until(lambda: len(client.get_run().progress.evaluations) == 1)
        always_left = {**BY_HAND, "q.weight": np.zeros((2, 4), np.float32)}
        params.publish(always_left, 50, 1)
        wait_until(lambda: len(client.get_run().progress.evaluations) == 2)

    good, bad = client.get_run().progress.evaluations
    assert (good.policy_version, good.learner_step) == (1, 40)
    assert list(good.episode_returns) == [500.0] * 20
    assert (bad.policy_version, bad.learner_step) == (2, 50)
    assert 8 <= np.mean(bad.episode_returns) <= 11
    assert stop_and_time(evaluator) < 2.0


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"env": EnvConfig(id="CartPoll-v1")}, "env.id='CartPoll-v1'"),
        ({"env": EnvConfig(id="Pendulum-v1")}, "action values need a Discrete action space"),
    ],
)
def test_an_environment_that_cannot_be_played_ends_the_actor_with_one_line(
    start, address, client, changes, expected
):
    actor = start("mycelia_actor", "--join", address, "--log-level", "error")
    start("mycelia_replay", "--join", address)
    client.create_run("test", CONFIG.model_copy(update=changes).model_dump_json())

    assert actor.wait(20) == 1
    (line,) = actor.stderr.read().splitlines()
    assert expected in line


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_a_gpu_that_is_not_there_is_asked_for_in_vain_and_auto_does_without(start, address, client):
    start("mycelia_replay", "--join", address)
    acts = {"actor": CONFIG.actor.model_copy(update={"device": "cuda"})}
    refused = start("mycelia_actor", "--join", address, "--log-level", "error")
    client.create_run("test", CONFIG.model_copy(update=acts).model_dump_json())

    assert refused.wait(20) == 1
    (line,) = refused.stderr.read().splitlines()
    assert "actor.device=cuda: torch sees no GPU here" in line
    assert find_device("auto", "actor.device") == "cpu"


def test_bad_arguments_end_with_code_2(start):
    assert start("mycelia_actor", "--role", "spectator").wait(10) == 2


def test_torch_is_not_loaded_by_an_actor():
    code = "import sys, mycelia_actor.main; sys.exit('torch' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
