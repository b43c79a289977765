"""A whole learner against real servers, with rows from the test instead of actors."""

import json
import os
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

from mycelia.run.v1 import run_pb2 as pb
from mycelia_core.clients.params import ParamClient
from mycelia_learner.checkpoint import find_latest, load_weights, read
from mycelia_learner.service import LearnerOptions, serve

from .conftest import SIGNATURE, create_run, insert, make_config, read_lines


class Stage:
    """A run with a filled replay table, as if actors had been at work."""

    def __init__(self, servers, client, config):
        self.client = client
        self.run = create_run(client, config)
        self.actor = client.join(pb.ROLE_ACTOR, signature=SIGNATURE)
        replay = servers.start_replay(self.run.run_id, config)
        self.replay = client.join(pb.ROLE_REPLAY, address=replay.address)
        insert(replay.address, self.run.run_id, 330)

    def wait_for(self, condition, seconds=30):
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            answer = self.client.get_run(self.run.run_id)
            if condition(answer):
                return answer
            time.sleep(0.05)
        raise AssertionError("it did not come about in time")

    def wait_for_version(self, version):
        return self.wait_for(lambda answer: answer.weight_version >= version)

    def weights(self):
        with ParamClient(self.client.address, self.run.run_id) as params:
            return params.get()

    def close(self):
        self.actor.leave()
        self.replay.leave()


@pytest.fixture
def make_stage(servers, run_client):
    stages = []

    def make(**sections):
        stages.append(Stage(servers, run_client, make_config(**sections)))
        return stages[-1]

    yield make
    for stage in stages:
        stage.close()


def start_learner(stage, tmp_path, **options):
    """Runs the learner in a thread; returns it with its stop event."""
    stop = threading.Event()
    options = LearnerOptions(
        join=stage.client.address, run_dir=options.pop("run_dir", tmp_path / "run"), **options
    )
    thread = threading.Thread(target=serve, args=(options, stop))
    thread.start()
    return thread, stop


def test_a_solved_run_ends_with_the_weights_that_solved_it(make_stage, tmp_path):
    stage = make_stage()
    thread, _ = start_learner(stage, tmp_path)
    stage.wait_for_version(3)
    weights = stage.weights()

    stage.client.report_evaluation(
        policy_version=weights.version,
        learner_step=weights.learner_step,
        env_steps=0,
        episode_returns=[100.0, 101.0],
    )
    thread.join(20)

    assert not thread.is_alive()
    run = stage.client.get_run().run
    assert (run.phase, run.outcome) == (pb.PHASE_FINISHED, pb.OUTCOME_SOLVED)
    last, saved = stage.weights(), load_weights(tmp_path / "run")
    for name, tensor in weights.tensors.items():
        np.testing.assert_array_equal(last.tensors[name], tensor)
        np.testing.assert_array_equal(saved[name], tensor)


def test_a_run_ends_at_its_last_update_and_takes_no_further_one(make_stage, tmp_path):
    stage = make_stage(limits={"max_updates": 37})
    thread, _ = start_learner(stage, tmp_path)

    thread.join(20)

    assert not thread.is_alive()
    run = stage.client.get_run().run
    assert (run.phase, run.outcome) == (pb.PHASE_FINISHED, pb.OUTCOME_STEP_LIMIT)
    assert run.outcome_detail == "37 of at most 37 updates"
    assert read(find_latest(tmp_path / "run")).state["learner_step"] == 37


def test_a_stopped_learner_leaves_everything_in_its_folder(make_stage, tmp_path):
    stage = make_stage()
    thread, stop = start_learner(stage, tmp_path)
    stage.wait_for_version(2)

    stop.set()
    start = time.monotonic()
    thread.join(20)

    assert time.monotonic() - start < 8
    folder = tmp_path / "run"
    assert json.loads((folder / "config.json").read_text())["name"] == "test"
    assert read_lines(folder / "metrics.jsonl")[-1]["learner_steps"] > 0
    assert (folder / "curve.png").stat().st_size > 5_000
    assert list((folder / "tensorboard").iterdir())
    state = read(find_latest(folder)).state
    assert state["learner_step"] == read_lines(folder / "metrics.jsonl")[-1]["learner_steps"]
    roles = {member.role for member in stage.client.get_run().members}
    assert pb.ROLE_LEARNER not in roles
    assert stage.client.get_run().run.phase == pb.PHASE_TRAINING


def test_a_learner_goes_on_from_another_runs_checkpoint(make_stage, tmp_path):
    stage = make_stage()
    thread, stop = start_learner(stage, tmp_path)
    stage.wait_for_version(2)
    stop.set()
    thread.join(20)
    before = read(find_latest(tmp_path / "run")).state["learner_step"]

    thread, stop = start_learner(
        stage, tmp_path, run_dir=tmp_path / "second", resume=tmp_path / "run"
    )
    version = stage.client.get_run().weight_version
    stage.wait_for_version(version + 2)
    stop.set()
    thread.join(20)

    assert read(find_latest(tmp_path / "second")).state["learner_step"] > before


def test_at_the_step_limit_the_learner_ends_the_run(make_stage, tmp_path):
    stage = make_stage(limits={"max_env_steps": 1000})
    thread, _ = start_learner(stage, tmp_path)
    stage.wait_for_version(2)

    stage.actor.set_counters({"env_steps": 1000})
    thread.join(20)

    assert stage.client.get_run().run.outcome == pb.OUTCOME_STEP_LIMIT


def test_when_somebody_else_ends_the_run_the_learner_saves_and_leaves(make_stage, tmp_path):
    stage = make_stage()
    thread, _ = start_learner(stage, tmp_path)
    stage.wait_for_version(2)

    stage.client.finish_run(pb.OUTCOME_STOPPED, "enough")
    thread.join(20)

    assert not thread.is_alive()
    assert find_latest(tmp_path / "run") is not None
    assert stage.client.get_run().run.outcome == pb.OUTCOME_STOPPED


def learner_process(address, *arguments):
    return subprocess.Popen(
        [sys.executable, "-m", "mycelia_learner", "--join", address, *arguments],
        stderr=subprocess.PIPE,
        text=True,
    )


def test_a_killed_learner_comes_back_from_its_folder_and_sigterm_exits_0(make_stage, tmp_path):
    learner = make_config().learner.model_dump() | {"checkpoint_period_seconds": 0.1}
    stage = make_stage(learner=learner)
    first = learner_process(stage.client.address, "--run-dir", str(tmp_path))
    stage.wait_for(lambda _: find_latest(tmp_path) is not None)
    os.kill(first.pid, signal.SIGKILL)
    first.communicate()
    step = read(find_latest(tmp_path)).state["learner_step"]
    version = stage.client.get_run().weight_version

    second = learner_process(stage.client.address, "--run-dir", str(tmp_path))
    stage.wait_for_version(version + 2)
    second.send_signal(signal.SIGTERM)
    _, log = second.communicate(timeout=20)

    assert second.returncode == 0, log
    assert f"learner step {step}" in log
    assert read(find_latest(tmp_path)).state["learner_step"] > step


def test_nothing_to_resume_is_an_error_in_one_line(make_stage, tmp_path):
    stage = make_stage()

    process = learner_process(
        stage.client.address, "--run-dir", str(tmp_path / "a"), "--resume", str(tmp_path / "b")
    )
    _, log = process.communicate(timeout=20)

    assert process.returncode == 1
    assert "nothing to resume: no whole checkpoint in" in log.splitlines()[-1]
    assert "Traceback" not in log
