"""Presets other than the usual one, by `MYCELIA_PRESET=... docker compose up`."""

import json

import pytest

from mycelia_cli.presets import load_preset, preset_names
from mycelia_core.config import RunConfig

from .conftest import run

MAKE_ENVIRONMENTS = """
import json, sys
from mycelia_actor.environments.make import make_environment
from mycelia_core.config import EnvConfig
for config in json.loads(sys.argv[1]):
    environment = make_environment(EnvConfig.model_validate(config))
    environment.reset(seed=0)
    environment.close()
    print("made", config["id"])
"""
SMALL = "limits.max_env_steps=1500 evaluation.episodes=1"


def test_a_preset_without_replay_is_solved_too(make_stack):
    stack = make_stack("", "a3c-cartpole")
    stack.up()

    codes = stack.wait_end()

    assert set(codes.values()) == {0}, codes
    assert "solved: mean return" in stack.log("learner")
    assert "need no replay: idle until the end" in stack.log("replay")


@pytest.mark.parametrize("preset", ["dppo-halfcheetah", "dqn-pong", "a3c-pong-cpu"])
def test_a_preset_begins_and_ends(make_stack, preset):
    stack = make_stack(SMALL, preset)
    stack.up()

    codes = stack.wait_end()

    assert set(codes.values()) == {0}, (codes, stack.compose("logs", "--no-color"))
    assert "Traceback" not in stack.compose("logs", "--no-color")
    (folder,) = stack.runs.glob(f"{preset}-*")
    assert (folder / "checkpoint").exists()


@pytest.mark.parametrize("inference", ["local", "central"])
def test_the_profile_inference_acts_for_all_or_ends_unused(make_stack, inference):
    stack = make_stack(f"{SMALL} actor.inference={inference}")
    stack.compose("--profile", "inference", "up", "-d", "--no-build")

    codes = stack.wait_end()

    assert set(codes.values()) == {0}, (codes, stack.compose("logs", "--no-color"))
    unused = "needs no inference service: idle until the end" in stack.log("inference")
    assert unused == (inference == "local")


def test_the_actors_image_has_the_environment_of_every_preset(images):
    configs = [RunConfig.model_validate(load_preset(name).settings) for name in preset_names()]
    wanted = json.dumps([config.env.model_dump(mode="json") for config in configs])

    words = ["docker", "run", "--rm", "--entrypoint", "python", "mycelia/actor:latest"]
    made = run([*words, "-c", MAKE_ENVIRONMENTS, wanted])

    assert made.count("made ") == len(configs) > 5
