"""No two environments share a seed; a restarted actor plays on, not again."""

from mycelia.run.v1 import run_pb2
from mycelia_actor.environment_seeds import ActorSeeds, actor_seeds


def test_no_two_environments_of_any_two_actors_share_a_seed():
    seeds = [s for index in range(64) for s in ActorSeeds(1, index).environments(32)]

    assert len(set(seeds)) == len(seeds)


def test_a_fresh_run_repeats_itself_and_another_seed_does_not():
    fresh = run_pb2.Run(phase=run_pb2.PHASE_STARTING)

    first = actor_seeds(fresh, 1, 0, "a").environments(8)

    assert actor_seeds(fresh, 1, 0, "b").environments(8) == first
    assert not set(actor_seeds(fresh, 2, 0, "a").environments(8)) & set(first)


def test_an_actor_that_replaces_another_plays_other_games():
    fresh = run_pb2.Run(phase=run_pb2.PHASE_STARTING)
    training = run_pb2.Run(phase=run_pb2.PHASE_TRAINING)
    resumed = run_pb2.Run(phase=run_pb2.PHASE_STARTING, initial_env_steps=1000)

    plays = [
        actor_seeds(fresh, 1, 0, "a"),
        actor_seeds(training, 1, 0, "b"),
        actor_seeds(training, 1, 0, "c"),
        actor_seeds(resumed, 1, 0, "d"),
    ]

    seeds = [s for play in plays for s in play.environments(8)]
    assert len(set(seeds)) == len(seeds)
    assert len({play.policy().integers(2**62) for play in plays}) == len(plays)
