"""Environments from the config."""

import gymnasium
import pytest
from gymnasium.envs.classic_control.cartpole import CartPoleVectorEnv

from mycelia_actor.environments.autoreset import NextStepEnvironments
from mycelia_actor.environments.backend import make_environments
from mycelia_actor.environments.in_process import InProcessEnvironments
from mycelia_actor.environments.make import MakeEnvironmentError, make_environment
from mycelia_actor.environments.native import make_native
from mycelia_core.config import EnvConfig

CLASS_PATH = "gymnasium.envs.classic_control.cartpole:CartPoleEnv"


def test_a_registered_id_gets_its_time_limit():
    environment = make_environment(EnvConfig(id="CartPole-v1", kwargs={"max_episode_steps": 7}))

    assert environment.spec.max_episode_steps == 7


def test_a_class_path_is_imported_and_called_with_the_arguments():
    environment = make_environment(EnvConfig(id=CLASS_PATH, kwargs={"sutton_barto_reward": True}))

    assert type(environment).__name__ == "CartPoleEnv"


@pytest.mark.parametrize(
    ("environment_id", "expected"),
    [
        ("CartPoll-v1", r"env.id='CartPoll-v1': gymnasium.make\('CartPoll-v1'\).*CartPole"),
        ("no_such_package.envs:Env", r"importing 'no_such_package.envs' failed: ModuleNotFound"),
        ("math:Env-v0", r"no attribute 'Env-v0' in 'math', gymnasium.make\('Env-v0'\)"),
        ("math:sqrt", r"calling it with no arguments failed: TypeError"),
        ("collections:OrderedDict", r"makes a OrderedDict, not a gymnasium.Env"),
    ],
)
def test_a_failing_id_says_what_was_tried(environment_id, expected):
    with pytest.raises(MakeEnvironmentError, match=expected):
        make_environment(EnvConfig(id=environment_id))


def test_many_cartpoles_are_stepped_natively_and_few_one_by_one():
    many = make_environments(EnvConfig(id="CartPole-v1"), 8)
    few = make_environments(EnvConfig(id="CartPole-v1", backend="sync"), 4)

    assert isinstance(many, NextStepEnvironments)
    assert isinstance(few, InProcessEnvironments)
    assert many.count == 8
    assert few.count == 4


def test_a_native_version_of_another_game_is_not_taken():
    class OtherCartPole(CartPoleVectorEnv):
        def __init__(self, **kwargs):
            super().__init__(**kwargs)
            self.single_observation_space = gymnasium.spaces.Box(0, 1, (3,))

    gymnasium.register(
        "OtherCartPole-v0",
        "gymnasium.envs.classic_control.cartpole:CartPoleEnv",
        vector_entry_point=OtherCartPole,
    )
    try:
        environments = make_native(EnvConfig(id="OtherCartPole-v0"), 8)
    finally:
        del gymnasium.registry["OtherCartPole-v0"]

    assert environments is None


def test_the_native_cartpole_keeps_its_time_limit():
    environments = make_environments(
        EnvConfig(id="CartPole-v1", kwargs={"max_episode_steps": 5}), 8
    )
    environments.reset(range(8))
    action = {"action": environments.action.encode([0, 1] * 4)["action"]}

    results = [environments.step(action) for _ in range(5)]

    assert results[-1].truncated.all()
    assert results[-1].episode_lengths.tolist() == [5] * 8
