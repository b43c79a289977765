"""The run registry's rules, on a clock that the test turns."""

import numpy as np
import pytest

from mycelia.run.v1 import run_pb2
from mycelia_core.rpc.errors import (
    AlreadyExistsError,
    FailedPreconditionError,
    InvalidArgumentError,
    NotFoundError,
)
from mycelia_core.specs import ColumnSpec, Signature
from mycelia_param_server.members import Identity, Role
from mycelia_param_server.progress import Episode, Evaluation
from mycelia_param_server.registry import Outcome, Phase, RunRegistry

LEASE_SECONDS = 10.0
ACTOR = Identity(instance_id="actor", role=Role.ACTOR)
LEARNER = Identity(instance_id="learner", role=Role.LEARNER)


class Clock:
    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def registry(clock):
    return RunRegistry(LEASE_SECONDS, clock, clock)


@pytest.fixture
def run(registry):
    return create(registry)


def create(registry, request_id="request", **fields):
    return registry.create(request_id=request_id, name="test", config_json="{}", **fields)[0]


def signature(observation_size=4):
    return Signature.of(
        [
            ColumnSpec("observation", np.dtype(np.float32), (observation_size,)),
            ColumnSpec("action", np.dtype(np.int64), (), 2),
        ]
    )


@pytest.mark.parametrize(
    ("kind", "wire"),
    [(Role, run_pb2.Role), (Phase, run_pb2.Phase), (Outcome, run_pb2.Outcome)],
)
def test_enums_have_the_numbers_of_the_protocol(kind, wire):
    prefix = kind.__name__.upper()

    assert {f"{prefix}_{member.name}": member.value for member in kind} == {
        name: number for name, number in wire.items() if number
    }


def test_a_run_id_is_12_lowercase_hexadecimal_characters(run):
    assert len(run.run_id) == 12
    assert set(run.run_id) <= set("0123456789abcdef")


def test_creating_again_with_the_same_request_id_gives_the_same_run(registry, run):
    assert create(registry) is run


def test_a_second_run_has_to_wait_for_the_first_to_finish(registry, run):
    with pytest.raises(AlreadyExistsError, match=run.run_id):
        create(registry, "other")

    registry.finish(run, Outcome.STOPPED)

    assert create(registry, "other").run_id != run.run_id


@pytest.mark.parametrize("steps", [-1, 2**60])
def test_initial_env_steps_that_cannot_be_are_refused(registry, steps):
    with pytest.raises(InvalidArgumentError, match="initial_env_steps"):
        create(registry, initial_env_steps=steps)


def test_a_stranger_is_refused_with_both_run_ids(registry, run):
    with pytest.raises(FailedPreconditionError, match=f"got 'other', .* run is '{run.run_id}'"):
        registry.find("other")


def test_without_a_run_everything_is_refused(registry):
    with pytest.raises(FailedPreconditionError, match="no run yet"):
        registry.find_any("")


def test_the_first_actors_signature_becomes_the_runs(registry, run):
    registry.join(run, LEARNER, signature())
    assert run.signature is None

    registry.join(run, ACTOR, signature())

    assert run.signature == signature()


def test_an_actor_with_another_signature_is_refused_by_column(registry, run):
    registry.join(run, ACTOR, signature(4))
    other = Identity(instance_id="other", role=Role.ACTOR)

    with pytest.raises(
        FailedPreconditionError, match=r"column 'observation': float32 \[4\] .* float32 \[5\]"
    ):
        registry.join(run, other, signature(5))

    assert len(list(run.members)) == 1


def test_nobody_joins_a_finished_run(registry, run):
    registry.finish(run, Outcome.SOLVED)

    with pytest.raises(FailedPreconditionError, match="has finished"):
        registry.join(run, ACTOR)


def test_a_member_needs_a_name(registry, run):
    with pytest.raises(InvalidArgumentError, match="instance_id"):
        registry.join(run, Identity(instance_id="", role=Role.ACTOR))


def test_the_phase_only_goes_forward(registry, run):
    registry.join(run, LEARNER)
    phases = []

    for sequence, phase in enumerate((Phase.TRAINING, Phase.COLLECTING, None), start=1):
        registry.heartbeat(run, "learner", sequence, counters={}, phase=phase)
        phases.append(run.phase)

    assert phases == [Phase.TRAINING] * 3


def test_a_heartbeat_cannot_finish_the_run(registry, run):
    registry.join(run, LEARNER)

    with pytest.raises(InvalidArgumentError, match="FinishRun"):
        registry.heartbeat(run, "learner", 1, counters={}, phase=Phase.FINISHED)


def test_only_the_learner_sets_the_phase(registry, run):
    registry.join(run, ACTOR)

    with pytest.raises(InvalidArgumentError, match="only a learner"):
        registry.heartbeat(run, "actor", 1, counters={}, phase=Phase.TRAINING)


def test_training_starts_with_the_first_learner_step(registry, run, clock):
    registry.join(run, LEARNER)
    registry.heartbeat(run, "learner", 1, counters={"learner_steps": 0})
    assert run.train_start_time is None

    clock.now += 1
    registry.heartbeat(run, "learner", 2, counters={"learner_steps": 3})
    clock.now += 1
    registry.heartbeat(run, "learner", 3, counters={"learner_steps": 6})

    assert run.train_start_time == 1001.0


def test_episodes_sent_again_count_once(registry, run):
    registry.join(run, ACTOR)

    for sequence in (1, 1, 2, 1):
        registry.heartbeat(run, "actor", sequence, counters={}, episodes=[Episode(9.0, 9)])

    assert run.progress.episode_count == 2


def test_the_last_100_episodes_are_kept_and_all_are_counted(registry, run):
    registry.join(run, ACTOR)
    episodes = [Episode(float(number), 1) for number in range(250)]

    registry.heartbeat(run, "actor", 1, counters={}, episodes=episodes)

    assert [e.episode_return for e in run.progress.recent_episodes] == list(range(150, 250))
    assert run.progress.episode_count == 250


def test_a_refused_report_is_refused_whole(registry, run):
    registry.join(run, ACTOR)

    with pytest.raises(InvalidArgumentError, match="finite return"):
        registry.heartbeat(
            run,
            "actor",
            1,
            counters={"env_steps": 5},
            episodes=[Episode(1.0, 1), Episode(float("nan"), 1)],
        )

    assert run.progress.episode_count == 0
    assert run.env_steps == 0


def test_env_steps_include_those_before_a_resume(registry):
    run = create(registry, initial_env_steps=1000)
    registry.join(run, ACTOR)

    registry.heartbeat(run, "actor", 1, counters={"env_steps": 5})

    assert run.env_steps == 1005


def test_the_first_outcome_stays(registry, run):
    registry.finish(run, Outcome.SOLVED, "475.0")
    registry.finish(run, Outcome.FAILED, "late")

    assert (run.outcome, run.outcome_detail) == (Outcome.SOLVED, "475.0")
    assert run.phase is Phase.FINISHED


def test_who_lost_its_lease_is_told_that_the_run_is_over(registry, run, clock):
    registry.join(run, ACTOR)
    clock.now += LEASE_SECONDS
    run = registry.find(run.run_id)
    with pytest.raises(NotFoundError):
        registry.heartbeat(run, "actor", 1, counters={})

    registry.finish(run, Outcome.STOPPED)

    registry.heartbeat(run, "actor", 1, counters={})


def evaluation(version, returns=(1.0,)):
    return Evaluation(
        policy_version=version, learner_step=10, env_steps=100, episode_returns=returns
    )


def test_an_evaluation_counts_once_per_version(registry, run, clock):
    registry.record_evaluation(run, evaluation(7, (1.0,)))
    clock.now += 1
    registry.record_evaluation(run, evaluation(7, (2.0,)))

    [kept] = run.progress.evaluations
    assert kept.episode_returns == (1.0,)
    assert kept.record_time == 1000.0


def test_the_last_1000_evaluations_are_kept(registry, run):
    for version in range(1, 1101):
        registry.record_evaluation(run, evaluation(version))

    assert [e.policy_version for e in run.progress.evaluations] == list(range(101, 1101))


@pytest.mark.parametrize("returns", [(), (float("nan"),)])
def test_an_evaluation_without_proper_returns_is_refused(registry, run, returns):
    with pytest.raises(InvalidArgumentError, match="episode_returns"):
        registry.record_evaluation(run, evaluation(1, returns))
