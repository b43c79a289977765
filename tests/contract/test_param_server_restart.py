"""A parameter server that is killed, and one that takes its place with what it kept on disk."""

import json
import signal
import threading
import time

import numpy as np
import pytest

from mycelia.run.v1 import run_pb2
from mycelia_core.clients.gradients import GradientClient, PushOutcome
from mycelia_core.clients.params import ParamClient
from mycelia_core.clients.run import RunClient
from mycelia_core.rpc.errors import AbortedError, InvalidArgumentError
from mycelia_core.specs import ColumnSpec, Signature

SIGNATURE = Signature.of(
    [
        ColumnSpec("observation", np.dtype(np.float32), (4,)),
        ColumnSpec("action", np.dtype(np.int64), (), 2),
    ]
)


@pytest.fixture
def start(start_param_server_process, tmp_path):
    """Starts a server that keeps checkpoints; `port` of one before makes it that one's heir."""

    def start(address="127.0.0.1:0", period=0.2, *, folder="checkpoints"):
        return start_param_server_process(
            "--bind",
            address,
            "--checkpoint-dir",
            str(tmp_path / folder),
            "--checkpoint-period-seconds",
            str(period),
        )

    return start


def config_of(topology, **gradients):
    plain = {"optimizer": "adam", "learning_rate": 0.1, "epsilon": 1e-8, "max_grad_norm": 0}
    return json.dumps(
        {
            "name": "test",
            "env": {"id": "CartPole-v1"},
            "algorithm": {"name": "dqn"},
            "topology": topology,
            "gradients": plain | gradients,
            "limits": {"max_updates": 100},
        }
    )


def kill(server):
    server.process.send_signal(signal.SIGKILL)
    server.process.wait(10)


def wait_until(condition, seconds=15.0):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def wait_for_checkpoint(folder, version):
    name = f"version-{version:09d}"
    wait_until((folder / name / "state.json").exists)


def weights():
    return {"b": np.zeros(4, np.float32), "a": np.ones((2, 3), np.float32)}


def gradient(step):
    rng = np.random.default_rng(step)
    return {name: rng.standard_normal(w.shape, np.float32) for name, w in weights().items()}


def push(client, sequence, version=None, worker="w"):
    return client.push(
        gradient(sequence),
        version=version or sequence,
        worker_id=worker,
        sequence=sequence,
        sample_count=1,
        timeout=20,
    )


def test_a_killed_registry_comes_back_with_run_members_progress_and_weights(start, tmp_path):
    server = start()
    with RunClient(server.address) as client:
        run = client.create_run("test", config_of("replay"), initial_env_steps=1000)
        params = ParamClient(server.address, run.run_id)
        actors = [client.join(run_pb2.ROLE_ACTOR, signature=SIGNATURE) for _ in range(2)]
        learner = client.join(run_pb2.ROLE_LEARNER, run_dir="runs/x")
        learner.set_phase(run_pb2.PHASE_TRAINING)
        actors[1].set_counters({"env_steps": 500})
        actors[1].add_episode(17.0, 17)
        for step in range(3):
            version = params.publish(weights(), learner_step=step, expected_version=step)
        client.report_evaluation(
            policy_version=2, learner_step=1, env_steps=1200, episode_returns=[1.0, 2.0]
        )
        wait_until(lambda: client.get_run().progress.episode_count == 1)
        wait_for_checkpoint(tmp_path / "checkpoints", version)
        time.sleep(0.5)
        before = client.get_run()

        kill(server)
        start(server.address)
        wait_until(lambda: is_there(client))
        after = client.get_run()

        assert after.run == before.run
        assert [(m.instance_id, m.index, m.role) for m in after.members] == [
            (m.instance_id, m.index, m.role) for m in before.members
        ]
        assert after.progress == before.progress
        assert after.progress.env_steps == 1500
        assert after.weight_version == 3
        assert not any(member.lost for member in (*actors, learner))
        np.testing.assert_array_equal(params.get().tensors["a"], weights()["a"])
        assert params.publish(weights(), learner_step=9, expected_version=3) == 4

        actors[0].add_episode(3.0, 3)
        wait_until(lambda: client.get_run().progress.episode_count == 2)
        newcomer = client.join(run_pb2.ROLE_ACTOR, signature=SIGNATURE)
        assert newcomer.index == 2, "the indices of those that are still there are taken"
        for member in (*actors, learner, newcomer):
            member.leave()
        params.close()


def is_there(client):
    try:
        return client.get_run(timeout=0.5)
    except Exception:  # noqa: BLE001 - whatever it is, it is not there yet
        return False


@pytest.mark.slow
def test_updates_after_a_restart_are_those_that_would_have_been_without_it(start, tmp_path):
    results = {}
    for name in ("killed", "twin"):
        server = start(folder=name)
        with RunClient(server.address) as client:
            run = client.create_run("test", config_of("async-gradients", schedule="linear"))
        with (
            ParamClient(server.address, run.run_id) as params,
            GradientClient(server.address, run.run_id) as worker,
        ):
            params.publish(weights(), learner_step=0, expected_version=0)
            for sequence in range(1, 6):
                push(worker, sequence)
            wait_for_checkpoint(tmp_path / name, 6)
            if name == "killed":
                kill(server)
                start(server.address, folder=name)
            for sequence in range(6, 11):
                results[name] = push(worker, sequence)

    assert results["killed"].version == results["twin"].version == 11
    for tensor in weights():
        np.testing.assert_array_equal(
            results["killed"].weights.tensors[tensor], results["twin"].weights.tensors[tensor]
        )


def train(server, steps, *, publish, **gradients):
    """Creates a run and makes pushes in it; returns the answer to the last."""
    with RunClient(server.address) as client:
        run = client.create_run("test", config_of("async-gradients", **gradients))
    with (
        ParamClient(server.address, run.run_id) as params,
        GradientClient(server.address, run.run_id) as worker,
    ):
        if publish:
            params.publish(weights(), learner_step=0, expected_version=0)
        else:
            wait_until(lambda: params.get() is not None)
        for sequence in steps:
            result = push(worker, sequence)
        return result, worker.info()


def test_a_new_run_goes_on_from_an_earlier_ones_weights_and_optimizer(
    start, start_param_server_process, tmp_path
):
    settings = {"schedule": "linear", "optimizer": "adam"}
    twin, _ = train(start(folder="twin"), range(1, 9), publish=True, **settings)
    first = start()
    train(first, range(1, 6), publish=True, **settings)
    first.process.terminate()
    assert first.process.wait(10) == 0

    second = start_param_server_process("--restore", str(tmp_path / "checkpoints"))
    last, info = train(second, range(6, 9), publish=False, **settings)

    assert last.version == twin.version == 9
    for name, tensor in twin.weights.tensors.items():
        np.testing.assert_array_equal(last.weights.tensors[name], tensor)
    assert info.update_count == 8
    assert dict(info.push_counts) == {"applied": 3}, "what was counted is this run's own"


def test_a_new_run_with_another_optimizer_begins_anew(start, start_param_server_process, tmp_path):
    first = start()
    train(first, range(1, 3), publish=True, optimizer="adam")
    first.process.terminate()
    first.process.wait(10)

    second = start_param_server_process("--restore", str(tmp_path / "checkpoints"))
    result, _ = train(second, range(1, 2), publish=True, optimizer="rmsprop")

    assert result.version == 2
    second.process.terminate()
    assert "is of optimizer adam, this run has rmsprop" in second.process.stderr.read()


def test_a_push_repeated_over_a_restart_is_applied_once(start, tmp_path):
    server = start()
    with RunClient(server.address) as client:
        run = client.create_run("test", config_of("async-gradients"))
    with (
        ParamClient(server.address, run.run_id) as params,
        GradientClient(server.address, run.run_id) as worker,
    ):
        params.publish(weights(), learner_step=0, expected_version=0)
        push(worker, 1)
        wait_for_checkpoint(tmp_path / "checkpoints", 2)
        kill(server)
        start(server.address)

        again = push(worker, 1)

        assert (again.outcome, again.version) == (PushOutcome.DUPLICATE, 2)
        info = worker.info()
        assert info.update_count == 1
        assert info.push_counts["applied"] == 1


@pytest.mark.slow
def test_what_was_not_saved_is_done_again_from_the_weights_that_were(start, tmp_path):
    server = start(period=600)
    with RunClient(server.address) as client:
        run = client.create_run("test", config_of("async-gradients"))
    with (
        ParamClient(server.address, run.run_id) as params,
        GradientClient(server.address, run.run_id) as worker,
    ):
        params.publish(weights(), learner_step=0, expected_version=0)
        wait_for_checkpoint(tmp_path / "checkpoints", 1)
        for sequence in range(1, 4):
            push(worker, sequence)
        kill(server)
        start(server.address)

        with pytest.raises(InvalidArgumentError, match="version: got 4, the newest is 1"):
            push(worker, 4)
        fresh = params.get(newer_than=4)

        assert fresh.version == 1, "who is ahead of the server goes back with it"
        assert push(worker, 5, version=1).outcome is PushOutcome.APPLIED


def test_a_watcher_follows_a_server_that_went_back(start, tmp_path):
    server = start(period=600)
    with RunClient(server.address) as client:
        run = client.create_run("test", config_of("replay"))
    with ParamClient(server.address, run.run_id) as params:
        params.publish(weights(), learner_step=0, expected_version=0)
        wait_for_checkpoint(tmp_path / "checkpoints", 1)
        params.publish(weights(), learner_step=1, expected_version=1)
        kill(server)
        start(server.address)
        stream = params.watch(newer_than=2)

        assert next(iter(stream)).version == 1
        stream.cancel()
        with pytest.raises(AbortedError, match="the newest is 1"):
            params.publish(weights(), learner_step=2, expected_version=2)


def test_a_round_goes_on_after_a_kill_in_the_middle_of_it(start, tmp_path):
    server = start()
    with RunClient(server.address) as client:
        run = client.create_run("test", config_of("sync-gradients", workers=2))
    with (
        ParamClient(server.address, run.run_id) as params,
        GradientClient(server.address, run.run_id) as first,
        GradientClient(server.address, run.run_id) as second,
    ):
        params.publish(weights(), learner_step=0, expected_version=0)
        wait_for_checkpoint(tmp_path / "checkpoints", 1)
        answers = []
        thread = threading.Thread(
            target=lambda: answers.append(push(first, 1, version=1, worker="one"))
        )
        thread.start()
        wait_until(lambda: sum(second.info().staleness_counts) == 1)
        kill(server)
        start(server.address)

        answers.append(push(second, 1, version=1, worker="two"))
        thread.join(20)

        assert [(a.outcome, a.version) for a in answers] == [(PushOutcome.APPLIED, 2)] * 2


@pytest.mark.slow
def test_sigterm_writes_a_last_checkpoint(start, tmp_path):
    server = start(period=600)
    with RunClient(server.address) as client:
        run = client.create_run("test", config_of("async-gradients"))
    with (
        ParamClient(server.address, run.run_id) as params,
        GradientClient(server.address, run.run_id) as worker,
    ):
        params.publish(weights(), learner_step=0, expected_version=0)
        for sequence in range(1, 4):
            push(worker, sequence)
        server.process.terminate()
        assert server.process.wait(10) == 0
        start(server.address)

        assert push(worker, 4).version == 5


@pytest.mark.slow
def test_a_broken_checkpoint_is_passed_over_for_the_one_before(start, tmp_path):
    server = start(period=0.1)
    with RunClient(server.address) as client:
        run = client.create_run("test", config_of("async-gradients"))
    with (
        ParamClient(server.address, run.run_id) as params,
        GradientClient(server.address, run.run_id) as worker,
    ):
        params.publish(weights(), learner_step=0, expected_version=0)
        folder = tmp_path / "checkpoints"
        for sequence in range(1, 4):
            push(worker, sequence)
            wait_for_checkpoint(folder, sequence + 1)
        kill(server)
        assert sorted(path.name for path in folder.glob("version-*")) == [
            "version-000000003",
            "version-000000004",
        ]
        broken = folder / "version-000000004" / "weights.safetensors"
        broken.write_bytes(broken.read_bytes()[:-1])
        start(server.address)

        assert params.get().version == 3


def test_a_registry_that_cannot_be_read_is_an_error_that_names_it(start, tmp_path):
    folder = tmp_path / "checkpoints"
    folder.mkdir()
    (folder / "registry.json").write_text('{"format": 99}')

    server = start()

    assert server.process.wait(10) == 1
    assert "registry.json: format 99, this version reads 1" in server.process.stderr.read()
