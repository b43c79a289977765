"""The learner that keeps records, against a real parameter server and a worker of the test's."""

import threading
import time

import numpy as np
import pytest

from mycelia.run.v1 import run_pb2 as pb
from mycelia_core.clients.gradients import GradientClient
from mycelia_core.clients.params import ParamClient
from mycelia_learner.checkpoint import find_best, find_latest, load_weights, read
from mycelia_learner.service import LearnerOptions, serve

from .conftest import SIGNATURE, create_run, make_config, read_lines


class Stage:
    """A run whose one worker is the test."""

    def __init__(self, client, run_dir, **settings):
        self.config = make_config(topology="async-gradients", algorithm={"name": "a3c"})
        self.client = client
        self.run = create_run(client, self.config, **settings)
        self.actor = client.join(pb.ROLE_ACTOR, signature=SIGNATURE)
        self.params = ParamClient(client.address, self.run.run_id)
        self.gradients = GradientClient(client.address, self.run.run_id)
        self.run_dir = run_dir
        self._sequence = 0

    def start_learner(self, **options):
        self.stop = threading.Event()
        options = LearnerOptions(join=self.client.address, run_dir=self.run_dir, **options)
        self.thread = threading.Thread(target=serve, args=(options, self.stop))
        self.thread.start()

    def push(self):
        self._sequence += 1
        version = self.client.get_run(self.run.run_id).weight_version
        return self.gradients.push(
            {"w": np.ones(3, np.float32)},
            version=version,
            worker_id=self.actor.instance_id,
            sequence=self._sequence,
            sample_count=1,
        )

    def report(self, version, *returns):
        self.client.report_evaluation(
            policy_version=version, learner_step=version, env_steps=10, episode_returns=returns
        )

    def wait_for(self, condition):
        deadline = time.monotonic() + 20
        while not condition(self.client.get_run(self.run.run_id)):
            assert time.monotonic() < deadline, "it did not come about in time"
            time.sleep(0.05)

    def end(self):
        self.thread.join(20)
        assert not self.thread.is_alive()

    def close(self):
        self.stop.set()
        self.end()
        self.gradients.close()
        self.params.close()
        self.actor.leave()


@pytest.fixture
def stage(run_client, tmp_path):
    stage = Stage(run_client, tmp_path / "run")
    stage.params.publish({"w": np.zeros(3, np.float32)}, 0, expected_version=0)
    yield stage
    stage.close()


def in_training(answer):
    return answer.run.phase == pb.PHASE_TRAINING


def test_the_weights_that_solved_the_run_are_saved_though_newer_ones_came(stage):
    stage.start_learner()
    stage.wait_for(in_training)
    stage.push()
    # As the evaluator does: what it took can be had again.
    evaluated = stage.params.get()
    for _ in range(20):
        stage.push()

    stage.report(evaluated.version, 120.0, 130.0)
    stage.end()

    run = stage.client.get_run(stage.run.run_id).run
    assert run.outcome == pb.OUTCOME_SOLVED
    best = read(find_best(stage.run_dir))
    assert best.state["evaluation_return_mean"] == 125.0
    np.testing.assert_array_equal(best.tensors["network/w"], evaluated.tensors["w"])
    np.testing.assert_array_equal(load_weights(stage.run_dir)["w"], evaluated.tensors["w"])
    assert read(find_latest(stage.run_dir)).state["learner_step"] >= 20


def test_the_workers_figures_are_recorded_as_the_learners(stage):
    stage.start_learner()
    stage.actor.set_counters({"loss": 0.5, "applied_gradients": 7, "env_steps": 100})
    stage.wait_for(in_training)
    stage.push()
    stage.wait_for(lambda answer: answer.progress.env_steps == 100)
    time.sleep(1.5)

    stage.stop.set()
    stage.end()

    last = read_lines(stage.run_dir / "metrics.jsonl")[-1]
    assert (last["loss"], last["applied_gradients"], last["env_steps"]) == (0.5, 7, 100)
    assert last["learner_steps"] >= 1


def test_a_resumed_run_begins_with_the_checkpoints_weights(stage, servers, tmp_path):
    stage.start_learner()
    stage.wait_for(in_training)
    stage.push()
    trained = stage.params.get().tensors["w"]
    time.sleep(0.5)
    stage.stop.set()
    stage.end()

    from mycelia_core.clients.run import RunClient

    with RunClient(servers.start_params().address) as client:
        second = Stage(client, tmp_path / "second", initial_env_steps=10)
        second.start_learner(resume=stage.run_dir)
        second.wait_for(in_training)
        resumed = second.params.get()
        second.close()

    np.testing.assert_array_equal(resumed.tensors["w"], trained)
