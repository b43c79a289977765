"""Action masks: where they come from, that they are obeyed, and that empty ones are errors."""

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from mycelia_actor.environments.action_mask import ActionMask, ActionMaskError
from mycelia_actor.environments.autoreset import adapt
from mycelia_actor.environments.in_process import InProcessEnvironments
from mycelia_actor.environments.spaces import signature_of
from mycelia_actor.environments.supervisor import Supervisor
from mycelia_actor.policies.action_values import MlpValues
from mycelia_actor.policies.epsilon_greedy import EpsilonGreedy
from mycelia_actor.policies.random_actions import RandomActions
from mycelia_actor.recorder import Recorder
from mycelia_core.config import EnvConfig
from mycelia_core.weights import Weights


class MaskedEnv(gymnasium.Env[Any, Any]):
    """Step t allows actions t and t + 1 of 4, modulo 4; four steps an episode, then none."""

    action_space = spaces.Discrete(4)

    def __init__(self, in_info: bool, empty_at: int = -1) -> None:
        seen = spaces.Box(0, 9, (2,), np.float32)
        key = {"legal": spaces.MultiBinary(4), "seen": seen}
        self.observation_space = seen if in_info else spaces.Dict(key)
        self._in_info, self._empty_at, self._t = in_info, empty_at, 0

    def reset(self, *, seed=None, options=None):
        self._t = 0
        return self._show()

    def step(self, action):
        assert self._mask()[action], "an action that is not legal"
        self._t += 1
        seen, info = self._show()
        return seen, 1.0, self._t == 4, False, info

    def _mask(self):
        legal = np.zeros(4, np.int8)
        if self._t < 4 and self._t != self._empty_at:
            legal[[self._t % 4, (self._t + 1) % 4]] = 1
        return legal

    def _show(self):
        seen = np.full(2, self._t, np.float32)
        if self._in_info:
            return seen, {"action_mask": self._mask()}
        return {"legal": self._mask(), "seen": seen}, {}


def make(in_info, empty_at=-1):
    return ActionMask(MaskedEnv(in_info, empty_at), "info" if in_info else "legal")


def columns_of(environment):
    environments = InProcessEnvironments([environment])
    return signature_of(environments.observation, environments.action)


@pytest.mark.parametrize("in_info", [True, False])
def test_the_mask_is_a_column_beside_the_observation(in_info):
    signature = columns_of(make(in_info))

    seen = "observation" if in_info else "observation/seen"
    assert [str(column) for column in signature.starting_with("action_mask")] == ["int8 [4]"]
    assert [column.name for column in signature.starting_with("observation")] == [seen]


def policies(environments, count):
    signature = signature_of(environments.observation, environments.action)
    yield RandomActions(environments.action, count, seed=1)
    for epsilon in (0.0, 0.5, 1.0):
        policy = EpsilonGreedy(
            MlpValues(signature), np.full(count, epsilon), np.random.default_rng(1)
        )
        # The highest value is always that of action 3.
        bias = np.arange(4, dtype=np.float32)
        policy.use(Weights(1, 0, {"q.weight": np.zeros((4, 2), np.float32), "q.bias": bias}))
        yield policy


@pytest.mark.parametrize("in_info", [True, False])
@pytest.mark.parametrize("mode", [None, *AutoresetMode])
def test_only_legal_actions_are_taken_and_masks_reach_the_rows(in_info, mode, row_list):
    make_one = lambda: make(in_info)  # noqa: E731
    if mode is None:
        environments = InProcessEnvironments([make_one(), make_one()])
    else:
        environments = adapt(SyncVectorEnv([make_one] * 2, autoreset_mode=mode))
    for policy in policies(environments, 2):
        recorder = Recorder(row_list, policy, environments.action)
        observation = environments.reset([1, 2])
        for _ in range(12):
            if not observation.ready.all():
                # In a step that only resets, the final observation may allow nothing.
                action = {"action": np.zeros(2, np.int64)}
                observation = environments.step(action).observation
                continue
            choice = policy.act(observation.columns)
            result = environments.step(choice.action)
            recorder.record(observation, choice, result)
            observation = result.observation
        masks = [row["action_mask"].tolist() for row in row_list.streams[1][:5]]
        expected = [[1, 1, 0, 0], [0, 1, 1, 0], [0, 0, 1, 1], [1, 0, 0, 1], [0, 0, 0, 0]]
        assert masks == expected


def test_the_greedy_action_is_the_best_legal_one_and_so_are_the_values():
    environments = InProcessEnvironments([make(True)])
    policy = list(policies(environments, 1))[1]
    observation = environments.reset([1])

    choice = policy.act(observation.columns)

    assert choice.action["action"].tolist() == [1]
    assert choice.q_max.tolist() == [1.0]


@pytest.mark.parametrize("in_info", [True, False])
def test_a_mask_that_allows_nothing_is_an_error_with_environment_and_step(in_info):
    config = EnvConfig(id="Masked-v0")
    supervisor = Supervisor(config, lambda _: make(in_info, 2), 1)
    environments = InProcessEnvironments([make(in_info, 2)], supervisor)
    environments.reset([1])
    environments.step({"action": np.array([0])})

    with pytest.raises(ActionMaskError, match=r"MaskedEnv.*step 2: the action mask allows no"):
        environments.step({"action": np.array([1])})


def test_a_mask_that_is_not_there_is_an_error_that_says_where_it_was_looked_for(counting_env):
    environments = InProcessEnvironments([ActionMask(counting_env(), "info")])

    with pytest.raises(ActionMaskError, match=r'info\["action_mask"\] is missing'):
        environments.reset([1])
    with pytest.raises(ActionMaskError, match=r"env\.action_mask='legal': no such key"):
        ActionMask(counting_env(), "legal")
