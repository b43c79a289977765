"""Environments are stepped in groups where that gains, and together where it is asked for."""

from pathlib import Path

import pytest

from mycelia_actor.actor import make_loop, make_recorders
from mycelia_actor.environments import backend, grouping
from mycelia_actor.environments.backend import make_environments, make_fastest
from mycelia_actor.environments.grouping import count_groups
from mycelia_actor.environments.joined_groups import JoinedGroups
from mycelia_actor.grouped_loop import GroupedLoop
from mycelia_actor.loop import ActingLoop
from mycelia_core.config import ActorConfig, EnvConfig, ReplayConfig, RunConfig

PONG = {"id": "PongNoFrameskip-v4", "preprocessing": "atari"}


def make_config(env, **actor):
    return RunConfig(
        name="groups",
        env=EnvConfig(**env),
        actor=ActorConfig(**{"count": 1, "envs_per_actor": 2} | actor),
        replay=ReplayConfig(sampler="uniform"),
        algorithm={"name": "dqn", "gamma": 0.99},
    )


@pytest.mark.parametrize(
    ("env", "actor", "cores", "expected"),
    [
        (PONG, {}, 3, 2),
        (PONG, {}, 2, 1),
        (PONG, {"count": 2}, 3, 1),
        (PONG, {"inference": "central"}, 3, 1),
        (PONG | {"backend": "sync"}, {}, 3, 1),
        ({"id": "CartPole-v1"}, {}, 8, 1),
        ({"id": "CartPole-v1"}, {"groups": 3}, 1, 3),
    ],
)
def test_two_groups_are_for_screens_made_on_an_idle_core(env, actor, cores, expected, monkeypatch):
    monkeypatch.setattr(grouping, "core_count", lambda: cores)

    assert count_groups(make_config(env, **actor)) == expected


@pytest.mark.parametrize(("groups", "expected"), [(0, GroupedLoop), (1, ActingLoop)])
def test_worker_processes_are_acted_for_one_by_one_unless_told_otherwise(
    groups, expected, monkeypatch
):
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))
    env = {"id": "counting_env:CountingEnv", "backend": "process", "processes": 2}
    config = make_config(env, groups=groups)
    environments = make_environments(config.env, 2, count_groups(config))

    recorders = make_recorders(config, environments, None, None)
    loop = make_loop(config, environments, None, recorders, newest_weights=None, reporter=None)
    environments.close()

    assert isinstance(loop, expected)
    assert len(recorders) == (2 if expected is GroupedLoop else 1)


def test_environments_that_wait_do_so_in_a_process_each(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))
    monkeypatch.setattr(backend, "core_count", lambda: 2)
    env = EnvConfig(id="waiting_env:WaitingEnv", kwargs={"seconds": 0.01})

    picked, environments = make_fastest(env, 3)
    environments.close()

    assert picked == "process"
    assert isinstance(environments, JoinedGroups)
    assert [group.count for group in environments.groups] == [1] * 3
