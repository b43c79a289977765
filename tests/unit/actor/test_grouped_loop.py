"""Groups are stepped on their own, acted for together, and recorded exactly."""

import threading
import time
from pathlib import Path

import numpy as np
import pytest

from mycelia_actor.environments.backend import make_environments
from mycelia_actor.environments.in_process import InProcessEnvironments
from mycelia_actor.environments.joined_groups import JoinedGroups
from mycelia_actor.environments.thread_group import ThreadGroup
from mycelia_actor.grouped_loop import GroupedLoop
from mycelia_actor.policies.policy import ActionChoice
from mycelia_actor.recorder import Recorder
from mycelia_core.config import EnvConfig
from mycelia_core.weights import Weights


class Watching:
    """A policy that notes for whom it acted, and in which version."""

    def __init__(self, seconds=0.0):
        self.slots, self._version, self._seconds = [], 0, seconds

    def use(self, weights):
        self._version = weights.version

    def act(self, observation, slots=None):
        self.slots.append(slots.tolist())
        time.sleep(self._seconds)
        return ActionChoice({"action": slots % 5}, policy_version=self._version)


class Counter:
    """Counts, and stops the loop after so many steps, once every stream has some rows."""

    def __init__(self, limit, streams, stop):
        self.env_steps, self.returns, self._limit, self._stop = 0, [], limit, stop
        self._streams = streams

    def add(self, choice, result):
        self.env_steps += result.step_count
        self.returns += result.episode_returns.tolist()
        if self.env_steps >= self._limit and all(len(s) > 10 for s in self._streams.values()):
            self._stop.set()


class SlowEnvironments(InProcessEnvironments):
    """Takes a while for each step."""

    def step(self, action):
        time.sleep(0.02)
        return super().step(action)


def act(groups, rows, limit, act_seconds=0.0):
    policy, stop = Watching(act_seconds), threading.Event()
    count = sum(group.count for group in groups)
    streams = {slot: rows.streams.setdefault(slot, []) for slot in range(count)}
    counter = Counter(limit, streams, stop)
    recorders = [
        Recorder(rows, policy, group.action, first_slot=group.first_slot) for group in groups
    ]
    weights = Weights(7, 0, {})
    loop = GroupedLoop(groups, policy, recorders, lambda: weights, counter)
    loop.run(range(count), stop)
    for group in groups:
        group.close()
    return policy, counter


def expected(offset, steps):
    found, episode, t = [], 0, 0
    for _ in range(steps):
        t += 1
        ends = t == (1, 3, 4)[episode % 3]
        terminated, truncated = ends and episode % 2 == 0, ends and episode % 2 == 1
        seen = offset + 1000 * episode + t
        found.append((float(seen - 1), float(t), float(seen), terminated, truncated))
        if ends:
            episode, t = episode + 1, 0
    return found


def check(rows, slot, offset):
    transitions = rows.transitions(slot)
    assert [found[:5] for found in transitions] == expected(offset, len(transitions))
    assert {found[5] for found in transitions} == {slot % 5}
    assert len(transitions) > 5


def test_thread_groups_record_what_happened_each_in_its_own_streams(counting_env, row_list):
    groups = [
        ThreadGroup(InProcessEnvironments([counting_env(1e5 * slot) for slot in slots]), slots[0])
        for slots in ([0, 1], [2])
    ]

    policy, counter = act(groups, row_list, 100)

    for slot in range(3):
        check(row_list, slot, 100_000 * slot)
    assert sorted({slot for slots in policy.slots for slot in slots}) == [0, 1, 2]
    assert counter.returns.count(6.0) >= 3
    assert {int(row["policy_version"]) for row in row_list.streams[2]} == {7}


def test_a_slow_group_does_not_hold_up_the_others(counting_env, row_list):
    groups = [
        ThreadGroup(SlowEnvironments([counting_env()]), 0),
        ThreadGroup(InProcessEnvironments([counting_env()]), 1),
    ]

    act(groups, row_list, 300)

    fast, slow = (len(row_list.streams.get(slot, [])) for slot in (1, 0))
    assert fast > 5 * slow


def test_small_groups_are_acted_for_in_halves(counting_env, row_list):
    groups = [ThreadGroup(SlowEnvironments([counting_env()]), slot) for slot in range(6)]

    policy, _ = act(groups, row_list, 90, act_seconds=0.015)

    sizes = [len(slots) for slots in policy.slots]
    assert max(sizes) == 3
    assert np.mean(sizes) > 2
    for slot in range(6):
        check(row_list, slot, 0)


def test_joined_groups_are_one_vector_environment(counting_env, row_list):
    groups = [
        ThreadGroup(InProcessEnvironments([counting_env(1e5 * slot) for slot in slots]), slots[0])
        for slots in ([0, 1], [2])
    ]
    environments = JoinedGroups(groups)
    recorder = Recorder(row_list, None, environments.action)

    observation = environments.reset([1, 2, 3])
    for _ in range(40):
        choice = ActionChoice({"action": np.arange(3)})
        result = environments.step(choice.action)
        recorder.record(observation, choice, result)
        observation = result.observation
    environments.close()

    for slot in range(3):
        check(row_list, slot, 100_000 * slot)


def test_worker_processes_record_the_same_as_one_process(row_list, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))
    config = EnvConfig(id="counting_env:CountingEnv", backend="process", processes=2)
    environments = make_environments(config, 3)
    assert isinstance(environments, JoinedGroups)

    act(environments.groups, row_list, 150)

    for slot in range(3):
        check(row_list, slot, 0)


def test_an_error_in_a_thread_reaches_the_loop(row_list, counting_env):
    environment = counting_env()
    environment.step = None
    groups = [ThreadGroup(InProcessEnvironments([environment]), 0)]

    with pytest.raises(TypeError):
        act(groups, row_list, 10)
