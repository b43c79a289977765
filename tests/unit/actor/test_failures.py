"""Environments that raise, hang or crash cost their own episode and nothing else."""

import itertools
import logging
import time
from pathlib import Path

import numpy as np
import pytest

from mycelia_actor.environments.backend import make_environments
from mycelia_actor.environments.in_process import InProcessEnvironments
from mycelia_actor.environments.supervisor import EnvironmentFailedError, Supervisor
from mycelia_actor.n_step_priorities import NStepPriorities
from mycelia_actor.policies.policy import ActionChoice
from mycelia_actor.recorder import Recorder
from mycelia_core.config import EnvConfig

BROKEN = EnvConfig(id="broken_envs:BrokenEnv", backend="sync")
GAMMA = 0.5


class Scripted:
    """Makes environments of which each fails in the steps that its script names."""

    def __init__(self, counting_env, failing_steps):
        self._kind, self._scripts, self.made = counting_env, list(failing_steps), 0

    def __call__(self, config=None):
        script = self._scripts[self.made] if self.made < len(self._scripts) else ()
        environment = self._kind(offset=100_000 * self.made)
        self.made += 1
        steps, step = iter(range(1, 1000)), environment.step

        def step_or_fail(action):
            if next(steps) in script:
                raise RuntimeError("broken")
            return step(action)

        environment.step = step_or_fail
        return environment


def supervised(make, count):
    return InProcessEnvironments([make() for _ in range(count)], Supervisor(BROKEN, make, count))


class Values:
    """Values of observations that are their last digit plus one."""

    def greedy_value(self, observation, slots=None):
        return values(observation)


def values(observation):
    return observation["observation"][:, 0] % 10 + 1.0


def record(environments, rows, steps, *, n=None, drops=False):
    count = environments.count
    priorities = None if n is None else NStepPriorities(count, n, GAMMA)
    recorder = Recorder(rows, Values(), environments.action, priorities, drops_failed=drops)
    observation, results = environments.reset(range(count)), []
    for _ in range(steps):
        value = values(observation.columns)
        choice = ActionChoice({"action": np.zeros(count, np.int64)}, value, value, 1)
        result = environments.step(choice.action)
        recorder.record(observation, choice, result)
        results.append(result)
        observation = result.observation
    recorder.flush()
    return results


def test_a_fragment_ends_truncated_with_what_was_seen_last(counting_env, row_list):
    # Steps 1 | 2 3 4 | 5 6 and the 7th fails, in the third step of the third episode.
    environments = supervised(Scripted(counting_env, [(7,)]), 1)

    results = record(environments, row_list, 12)

    seen = [
        (int(row["observation"][0]), bool(row["first"]), bool(row["truncated"]))
        for row in row_list.streams[0]
    ]
    assert seen[:9] == [
        (0, True, False), (1, False, False),
        (1000, True, False), (1001, False, False), (1002, False, False), (1003, False, True),
        (2000, True, False), (2001, False, False), (2002, False, True),
    ]  # fmt: skip
    assert seen[9] == (100_000, True, False)
    assert [result.step_count for result in results][5:9] == [1, 0, 0, 1]


def test_episodes_that_failed_are_not_reported_and_those_after_are_exact(counting_env, row_list):
    environments = supervised(Scripted(counting_env, [(7,)]), 1)

    results = record(environments, row_list, 20)

    returns = [value for result in results for value in result.episode_returns.tolist()]
    assert returns == [1.0, 6.0, 1.0, 6.0, 10.0, 1.0, 6.0]


def test_the_others_go_on_while_one_is_down(counting_env, row_list):
    environments = supervised(Scripted(counting_env, [(2, 3), (), ()]), 3)

    results = record(environments, row_list, 10)

    assert sum(result.step_count for result in results) == 10 * 3 - 2
    assert [len(row_list.transitions(slot)) >= 9 for slot in (1, 2)] == [True, True]


def test_an_episode_that_fails_in_its_first_step_leaves_no_row(counting_env, row_list):
    environments = supervised(Scripted(counting_env, [(2,)]), 1)

    record(environments, row_list, 5)

    assert [int(row["observation"][0]) for row in row_list.streams[0]][:3] == [0, 1, 100_000]


@pytest.mark.parametrize("n", [1, 2, 3])
def test_windows_that_a_failure_cuts_bootstrap_from_what_was_seen_last(n, counting_env, row_list):
    environments = supervised(Scripted(counting_env, [(7,)]), 1)

    record(environments, row_list, 12, n=n)

    for row, last in ((6, 2), (7, 2)):
        t = row - 6
        m = min(n, last - t)
        target = sum(GAMMA**k * (t + k + 1) for k in range(m)) + GAMMA**m * (t + m + 1.0)
        assert row_list.streams[0][row]["priority"] == pytest.approx(abs(target - (t + 1.0)))


def test_a_dropped_fragment_is_taken_out_as_far_as_it_is_held(counting_env, row_list):
    environments = supervised(Scripted(counting_env, [(7,)]), 1)
    dropped = []
    row_list.drop = dropped.append

    record(environments, row_list, 12, n=5, drops=True)

    seen = [int(row["observation"][0]) for row in row_list.streams[0]]
    assert seen[:7] == [0, 1, 1000, 1001, 1002, 1003, 100_000]
    assert dropped == []


def test_a_dropped_fragment_that_is_sent_in_part_is_dropped_by_the_sink(counting_env, row_list):
    environments = supervised(Scripted(counting_env, [(7,)]), 1)
    dropped = []
    row_list.drop = dropped.append

    record(environments, row_list, 12, n=1, drops=True)

    assert dropped == [0]


def test_an_environment_that_fails_again_and_again_ends_the_actor_with_its_name():
    config = EnvConfig(id="broken_envs:AlwaysBroken", max_restarts=3, restart_seconds=0.001)
    environments = make_environments(config.model_copy(update={"backend": "sync"}), 2)
    environments.reset([1, 2])

    with pytest.raises(
        EnvironmentFailedError,
        match=r"environment [01] \(broken_envs:AlwaysBroken\) failed 4 times in a row.*never works",
    ):
        for _ in range(100):
            environments.step({"action": np.zeros(2, np.int64)})
            time.sleep(0.002)


def test_the_log_has_id_seed_and_stack(caplog):
    environments = make_environments(BROKEN.model_copy(update={"kwargs": {"probability": 1.0}}), 1)
    environments.reset([77])

    with caplog.at_level(logging.WARNING):
        environments.step({"action": np.zeros(1, np.int64)})

    assert "environment 0 (broken_envs:BrokenEnv), seed 77, failed" in caplog.text
    assert "the emulator lost its mind" in caplog.text
    assert "Traceback" in caplog.text


@pytest.mark.parametrize("how", ["hang", "crash"])
def test_a_worker_that_hangs_or_crashes_is_started_again(
    how, caplog, monkeypatch, row_list, tmp_path
):
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))
    config = EnvConfig(
        id="broken_envs:BrokenEnv",
        kwargs={"how": how, "probability": 0.02, "marker": str(tmp_path / "failed")},
        backend="process",
        processes=2,
        step_timeout_seconds=1.0,
    )
    environments = make_environments(config, 4)
    recorder = Recorder(row_list, Values(), environments.action)
    observation = environments.reset([11, 12, 13, 14])
    failed, recovered, deadline = 0, 0, time.monotonic() + 30
    while recovered < 30 and time.monotonic() < deadline:
        choice = ActionChoice({"action": np.zeros(4, np.int64)})
        result = environments.step(choice.action)
        recorder.record(observation, choice, result)
        if result.failed is not None:
            failed += len(result.failed)
        elif failed and result.step_count == 4:
            recovered += 1
        observation = result.observation
    environments.close()

    assert failed == 2, "both environments of a process fail together, the others do not"
    assert recovered == 30
    assert ("hangs" if how == "hang" else "SIGSEGV") in caplog.text
    assert "in _fail" in caplog.text
    for rows in row_list.streams.values():
        for row, after in itertools.pairwise(rows):
            ends = row["terminated"] or row["truncated"]
            assert after["first"] == ends, "nothing spans a crash"
            assert ends or after["observation"][0] == row["observation"][0] + 1
