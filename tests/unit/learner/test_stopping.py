"""When a run ends, and with which weights."""

import numpy as np
import pytest

from mycelia.run.v1 import run_pb2 as pb
from mycelia_learner.publisher import Snapshot
from mycelia_learner.stopping import Evaluated, StoppingRule


def snapshot(version):
    return Snapshot(10 * version, {"w": np.full(2, version)})


def make_rule(**changes):
    settings = {
        "solved_return": 475.0,
        "max_env_steps": 1000,
        "max_updates": 0,
        "find_snapshot": snapshot,
        "best": None,
    }
    return StoppingRule(**(settings | changes))


def progress(*evaluations, env_steps=0):
    return pb.Progress(
        env_steps=env_steps,
        evaluations=[
            pb.Evaluation(policy_version=version, episode_returns=returns)
            for version, returns in evaluations
        ],
    )


def test_an_evaluation_that_reaches_the_return_solves_the_run_with_its_own_weights():
    rule = make_rule()

    rule.observe(progress((1, [400, 440]), (2, [450, 500])))

    assert rule.decision.outcome == pb.OUTCOME_SOLVED
    assert rule.best.return_mean == 475
    assert rule.best.snapshot.tensors["w"].tolist() == [2, 2]


def test_below_the_return_the_run_goes_on():
    rule = make_rule()

    rule.observe(progress((1, [474, 475]), env_steps=999))

    assert rule.decision is None


@pytest.mark.parametrize(
    ("limit", "updates", "ends"), [(0, 10**9, False), (5, 4, False), (5, 5, True)]
)
def test_at_the_limit_of_updates_the_run_ends_if_there_is_one(limit, updates, ends):
    rule = make_rule(max_updates=limit)

    rule.observe_updates(updates)

    assert (rule.decision is not None) == ends
    if ends:
        assert rule.decision.outcome == pb.OUTCOME_STEP_LIMIT
        assert rule.decision.detail == "5 of at most 5 updates"


def test_a_run_that_is_solved_stays_so_whatever_its_updates():
    rule = make_rule(max_updates=5)
    rule.observe(progress((1, [475])))

    rule.observe_updates(5)

    assert rule.decision.outcome == pb.OUTCOME_SOLVED


def test_at_the_step_limit_the_run_ends_and_keeps_the_best_weights():
    rule = make_rule()

    rule.observe(progress((1, [300]), (2, [200]), env_steps=1000))

    assert rule.decision.outcome == pb.OUTCOME_STEP_LIMIT
    assert rule.best.snapshot.learner_step == 10


def test_solving_comes_before_the_step_limit():
    rule = make_rule()

    rule.observe(progress((1, [500]), env_steps=1000))

    assert rule.decision.outcome == pb.OUTCOME_SOLVED


def test_without_a_return_to_reach_only_the_limit_ends_a_run():
    rule = make_rule(solved_return=None)

    rule.observe(progress((1, [1e9])))

    assert rule.decision is None


def test_an_evaluation_after_the_decision_changes_nothing():
    rule = make_rule()
    rule.observe(progress((1, [480])))
    decision = rule.decision

    rule.observe(progress((1, [480]), (2, [500])))

    assert rule.decision is decision
    assert rule.best.return_mean == 480


def test_weights_no_longer_kept_cannot_be_the_best(caplog):
    rule = make_rule(find_snapshot={2: snapshot(2)}.get)

    rule.observe(progress((1, [300]), (2, [200])))

    assert rule.best.return_mean == 200
    assert "version 1 was evaluated but is no longer kept" in caplog.text


@pytest.mark.parametrize(("mean", "kept"), [(99.0, 100.0), (101.0, 101.0)])
def test_the_best_of_a_resumed_run_stays_until_it_is_beaten(mean, kept):
    rule = make_rule(best=Evaluated(100.0, snapshot(7)))

    rule.observe(progress((1, [mean])))

    assert rule.best.return_mean == kept
