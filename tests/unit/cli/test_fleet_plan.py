"""Which services a fleet is made of."""

import os

import pytest

from mycelia_cli.fleet_plan import REGISTRY, plan
from mycelia_cli.settings import resolve


def names(preset, *settings):
    config = resolve(preset, settings, os.environ).config
    return [service.name for service in plan(preset, settings, config)]


def test_a_run_with_replay_has_one_of_each():
    assert names("apex-cartpole") == ["param_server", "replay", "learner", "actor", "evaluator"]


def test_a_run_of_gradients_has_no_replay():
    assert names("a3c-cartpole") == ["param_server", "learner", "actor", "evaluator"]


@pytest.mark.parametrize(
    ("setting", "more"),
    [
        ("replay.shards=3", ["replay_1", "replay_2"]),
        ("param_server.shards=2", ["param_shard_1"]),
        ("actor.inference=central", ["inference"]),
    ],
)
def test_what_the_config_asks_for_beyond_that(setting, more):
    assert sorted(set(names("apex-cartpole", setting)) - set(names("apex-cartpole"))) == more


def test_every_shard_is_reached_by_its_own_name_and_keeps_its_own_rows():
    config = resolve("apex-cartpole", ["replay.shards=2"], os.environ).config
    first, second = (s for s in plan("apex-cartpole", (), config) if s.image == "replay")

    assert "replay:50052" in first.command and "replay_1:50052" in second.command
    assert first.data and second.data
    assert REGISTRY in first.command and REGISTRY in second.command
