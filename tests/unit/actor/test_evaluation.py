"""Greedy episodes with fixed seeds."""

import threading

import numpy as np
import pytest

from mycelia_actor.environments.make import make_environment
from mycelia_actor.evaluation import Evaluation, evaluate
from mycelia_core.config import EnvConfig, RunConfig

CARTPOLE = RunConfig(name="test", env=EnvConfig(id="CartPole-v1"), algorithm={"name": "dqn"})


def by_hand(columns, slots):
    """Holds the pole up for ever: push to where it falls."""
    seen = columns["observation"]
    return {"action": (seen[:, 2] + 0.25 * seen[:, 3] > 0).astype(np.int64)}


@pytest.fixture
def evaluation():
    evaluation = Evaluation([make_environment(CARTPOLE.env) for _ in range(20)])
    yield evaluation
    evaluation.close()


def test_the_hand_written_policy_gets_exactly_500_in_every_episode(evaluation):
    assert evaluation.play(by_hand, range(10_000, 10_020)) == [500.0] * 20


def test_more_episodes_than_environments_are_played_in_turn(counting_env):
    evaluation = Evaluation([counting_env(), counting_env()])
    zeros = lambda columns, slots: {"action": np.zeros(len(columns["observation"]), np.int64)}  # noqa: E731

    assert evaluation.play(zeros, range(5)) == [1.0, 1.0, 6.0, 6.0, 10.0]


def test_an_evaluation_that_is_stopped_has_no_returns(evaluation):
    stop = threading.Event()
    stop.set()

    assert evaluation.play(by_hand, range(20), stop) is None


def test_weights_are_judged_by_what_they_do_and_the_same_every_time():
    # Q(right) - Q(left) = theta + 0.25 * theta_dot: the hand-written policy as weights.
    tensors = {
        "q.weight": np.array([[0, 0, 0, 0], [0, 0, 1, 0.25]], np.float32),
        "q.bias": np.zeros(2, np.float32),
    }
    always_left = {**tensors, "q.weight": np.zeros((2, 4), np.float32)}

    assert evaluate(tensors, CARTPOLE, 40) == [500.0] * 40
    returns = evaluate(always_left, CARTPOLE, 20)
    assert returns == evaluate(always_left, CARTPOLE, 20)
    assert 8 <= np.mean(returns) <= 11
