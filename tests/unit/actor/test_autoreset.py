"""All backends and autoreset modes record the same rows."""

from functools import partial
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv

from mycelia_actor.environments.autoreset import UnknownAutoresetModeError, adapt
from mycelia_actor.environments.in_process import InProcessEnvironments
from mycelia_actor.environments.native import PooledEnvironments
from mycelia_actor.environments.screens import Screens
from mycelia_actor.policies.policy import ActionChoice
from mycelia_actor.recorder import Recorder

MODES = [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP, AutoresetMode.DISABLED]


class Count(gymnasium.Env[Any, Any]):
    """obs = offset + 100 * episode + t, reward t; terminates at `end`, if that is set."""

    observation_space = spaces.Box(-1, 1e9, (1,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, offset: int, end: int) -> None:
        self._offset, self._end, self._episode, self._t = offset, end, -1, 0

    def reset(self, *, seed=None, options=None):
        self._episode, self._t = self._episode + 1, 0
        return self._observe(), {}

    def step(self, action):
        self._t += 1
        return self._observe(), float(self._t), self._t == self._end, False, {}

    def _observe(self):
        return np.array([self._offset + 100 * self._episode + self._t], np.float32)


def oracle_envs():
    return [
        lambda: gymnasium.wrappers.TimeLimit(Count(0, end=-1), 3),
        lambda: gymnasium.wrappers.TimeLimit(Count(1000, end=2), 10),
    ]


def choose(step: int, count: int) -> ActionChoice:
    return ActionChoice({"action": np.full(count, step % 2, np.int64)})


def record(environments, rows, steps, count):
    """Acts for some steps and returns their results."""
    recorder = Recorder(rows, None, environments.action)
    observation, results = environments.reset(range(count)), []
    for step in range(steps):
        choice = choose(step, count)
        result = environments.step(choice.action)
        recorder.record(observation, choice, result)
        results.append(result)
        observation = result.observation
    environments.close()
    return results


def without_action(transitions):
    return [(*t[:5], t[6]) for t in transitions]


@pytest.mark.parametrize("mode", [*MODES, None])
def test_the_oracle_s_transitions_reach_the_rows_in_every_mode(mode, row_list):
    if mode is None:
        environments = InProcessEnvironments([make() for make in oracle_envs()])
    else:
        environments = adapt(SyncVectorEnv(oracle_envs(), autoreset_mode=mode))

    record(environments, row_list, 12, 2)

    first, second = (without_action(row_list.transitions(stream)) for stream in (0, 1))
    assert first[:5] == [
        (0, 1, 1, False, False, True),
        (1, 2, 2, False, False, False),
        (2, 3, 3, False, True, False),
        (100, 1, 101, False, False, True),
        (101, 2, 102, False, False, False),
    ]
    assert second[:4] == [
        (1000, 1, 1001, False, False, True),
        (1001, 2, 1002, True, False, False),
        (1100, 1, 1101, False, False, True),
        (1101, 2, 1102, True, False, False),
    ]


def expected_transitions(offset, steps):
    """What CountingEnv gives in so many real steps, without any adapter."""
    found, episode, t = [], 0, 0
    for _ in range(steps):
        seen = offset + 1000 * episode + t
        t += 1
        ends = t == (1, 3, 4)[episode % 3]
        terminated, truncated = ends and episode % 2 == 0, ends and episode % 2 == 1
        found.append((float(seen), float(t), float(seen + 1), terminated, truncated, t == 1))
        if ends:
            episode, t = episode + 1, 0
    return found


OFFSETS = (0.0, 100_000.0, 200_000.0)


def counters(backend, mode, counting_env):
    """Returns three counting environments behind the adapter for a backend and mode."""
    import native_counters

    if backend == "envpool":
        make = lambda _: native_counters.PoolOfCounters(OFFSETS)  # noqa: E731
        return PooledEnvironments(make([0]), make)
    if backend == "ale":
        return Screens(native_counters.ScreensOfCounters(OFFSETS), life_loss=mode == "life loss")
    makers = [partial(counting_env, offset) for offset in OFFSETS]
    if backend == "in_process":
        return InProcessEnvironments([make() for make in makers])
    kind = SyncVectorEnv if backend == "sync" else AsyncVectorEnv
    return adapt(kind(makers, autoreset_mode=mode))


BACKENDS = [
    *((backend, mode) for backend in ("sync", "async") for mode in MODES),
    ("in_process", None),
    ("envpool", None),
    ("ale", None),
    ("ale", "life loss"),
]


@pytest.mark.parametrize(("backend", "mode"), BACKENDS)
def test_backends_and_modes_record_what_happened_and_nothing_else(
    backend, mode, row_list, counting_env
):
    environments = counters(backend, mode, counting_env)

    results = record(environments, row_list, 60, 3)

    recorded = 0
    for stream, offset in enumerate(OFFSETS):
        transitions = without_action(row_list.transitions(stream))
        recorded += len(transitions)
        assert transitions == expected_transitions(offset, len(transitions))
    # The last row of each stream has no successor yet, unless its episode ended there.
    steps = sum(result.step_count for result in results)
    assert steps - 3 <= recorded <= steps


@pytest.mark.parametrize(("backend", "mode"), BACKENDS)
def test_returns_and_lengths_of_episodes_are_exact(backend, mode, row_list, counting_env):
    results = record(counters(backend, mode, counting_env), row_list, 40, 3)

    played = [
        (ret, length, bool(result.terminated[slot]))
        for result in results
        for slot, ret, length in zip(
            result.ended, result.episode_returns, result.episode_lengths, strict=True
        )
        if slot == 1
    ]
    expected = [(1.0, 1), (6.0, 3), (10.0, 4)] * 10
    assert [(ret, length) for ret, length, _ in played] == expected[: len(played)]
    assert [terminated for *_, terminated in played] == [i % 2 == 0 for i in range(len(played))]
    assert len(played) >= 10


def test_actions_of_a_step_that_only_resets_are_not_recorded(row_list, counting_env):
    environments = adapt(SyncVectorEnv([counting_env], autoreset_mode=AutoresetMode.NEXT_STEP))

    results = record(environments, row_list, 6, 1)

    # Steps 0 | 1 resets | 2 3 4 | 5 resets: four real steps.
    assert [result.step_count for result in results] == [1, 0, 1, 1, 1, 0]
    assert [int(row["action"]) for row in row_list.streams[0]] == [0, 0, 0, 1, 0, 0]


class NoisyResets(SyncVectorEnv):
    """Returns rewards and ends in the steps that only reset, as some vector environments do."""

    def step(self, actions):
        resets = self._autoreset_envs.copy()
        observation, reward, terminated, truncated, infos = super().step(actions)
        reward[resets] = 99.0
        return observation, reward, terminated | resets, truncated | resets, infos


def test_what_a_step_that_only_resets_returns_is_ignored(row_list, counting_env):
    environments = adapt(NoisyResets([counting_env], autoreset_mode=AutoresetMode.NEXT_STEP))

    results = record(environments, row_list, 30, 1)

    transitions = without_action(row_list.transitions(0))
    assert transitions == expected_transitions(0, len(transitions))
    returns = [ret for result in results for ret in result.episode_returns.tolist()]
    assert returns == ([1.0, 6.0, 10.0] * 10)[: len(returns)]


def test_an_environment_that_reuses_its_buffer_is_recorded_right(row_list, counting_env):
    environments = InProcessEnvironments([counting_env(reuses_buffer=True)])

    record(environments, row_list, 30, 1)

    transitions = without_action(row_list.transitions(0))
    assert transitions == expected_transitions(0, len(transitions))


def test_an_unknown_autoreset_mode_is_refused_with_its_value(counting_env):
    vector = SyncVectorEnv([counting_env])
    vector.metadata["autoreset_mode"] = "sometimes"

    with pytest.raises(UnknownAutoresetModeError, match=r"'sometimes', expected .*SAME_STEP"):
        adapt(vector)
    vector.close()


class NestedEnv(gymnasium.Env[Any, Any]):
    """Two steps an episode; the observation is nested."""

    observation_space = spaces.Dict(
        {
            "image": spaces.Box(0, 255, (2, 2), np.uint8),
            "pair": spaces.Tuple([spaces.Discrete(9, start=3), spaces.MultiBinary(2)]),
        }
    )
    action_space = spaces.Discrete(2)
    _t = 0

    def reset(self, *, seed=None, options=None):
        self._t = 0
        return self._observe(), {}

    def step(self, action):
        self._t += 1
        return self._observe(), 1.0, self._t == 2, False, {}

    def _observe(self):
        image = np.full((2, 2), self._t, np.uint8)
        return {"image": image, "pair": (np.int64(3 + self._t), np.array([1, 0], np.int8))}


@pytest.mark.parametrize("mode", [*MODES, None])
def test_nested_observations_keep_their_true_last_one(mode, row_list):
    if mode is None:
        environments = InProcessEnvironments([NestedEnv(), NestedEnv()])
    else:
        environments = adapt(SyncVectorEnv([NestedEnv] * 2, autoreset_mode=mode))

    record(environments, row_list, 9, 2)

    rows = row_list.streams[1][:6]
    assert [int(row["observation/image"][0, 0]) for row in rows] == [0, 1, 2, 0, 1, 2]
    assert [int(row["observation/pair/0"]) for row in rows] == [0, 1, 2, 0, 1, 2]
    assert [bool(row["terminated"]) for row in rows] == [False, False, True] * 2
    assert rows[2]["observation/pair/1"].tolist() == [1, 0]
