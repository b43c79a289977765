"""The loop swaps weights between steps only, and counts what really happened."""

import threading

import numpy as np

from mycelia_actor.environments.backend import make_environments
from mycelia_actor.environments.in_process import InProcessEnvironments
from mycelia_actor.environments.spaces import signature_of
from mycelia_actor.loop import ActingLoop
from mycelia_actor.policies.action_values import MlpValues
from mycelia_actor.policies.epsilon_greedy import EpsilonGreedy
from mycelia_actor.progress import Progress
from mycelia_actor.recorder import Recorder
from mycelia_core.config import EnvConfig
from mycelia_core.weights import Weights


class Register:
    """Keeps what a membership would send."""

    def __init__(self) -> None:
        self.counters: dict[str, float] = {}
        self.episodes: list[tuple[float, int]] = []

    def set_counters(self, counters):
        self.counters.update(counters)

    def add_episode(self, episode_return, length):
        self.episodes.append((episode_return, length))


class StopAfter:
    """Passes steps on to a Progress and stops the loop after so many."""

    def __init__(self, progress, steps, stop):
        self._progress, self._left, self._stop = progress, steps, stop

    def add(self, choice, result):
        self._progress.add(choice, result)
        self._left -= 1
        if not self._left:
            self._stop.set()


def bias_weights(version, preferred, action_count=5, size=1):
    bias = np.zeros(action_count, np.float32)
    bias[preferred] = 1.0
    matrix = np.zeros((action_count, size), np.float32)
    return Weights(version, 0, {"q.weight": matrix, "q.bias": bias})


def run_loop(environments, rows, newest_weights, steps):
    signature = signature_of(environments.observation, environments.action)
    epsilon = np.zeros(environments.count)
    policy = EpsilonGreedy(MlpValues(signature), epsilon, np.random.default_rng(1))
    recorder = Recorder(rows, policy, environments.action)
    register, stop = Register(), threading.Event()
    progress = Progress(register, lambda: 1.5, 0.25)
    reporter = StopAfter(progress, steps, stop)
    loop = ActingLoop(environments, policy, recorder, newest_weights, reporter)
    loop.run(range(environments.count), stop)
    progress.report()
    return register


def test_weights_change_between_steps_and_every_row_says_which_chose(counting_env, row_list):
    calls = iter(range(1000))

    def newest_weights():
        version = next(calls) // 4
        return bias_weights(version, version % 5) if version else None

    environments = InProcessEnvironments([counting_env(), counting_env()])
    run_loop(environments, row_list, newest_weights, 24)

    rows = [row for row in row_list.streams[0] if not (row["terminated"] or row["truncated"])]
    versions = [int(row["policy_version"]) for row in rows]
    assert versions == [step // 4 for step in range(24)]
    assert all(row["action"] == row["policy_version"] % 5 for row in rows[4:])


def test_steps_and_episodes_are_counted_exactly(counting_env, row_list):
    environments = InProcessEnvironments([counting_env()])

    register = run_loop(environments, row_list, lambda: None, 16)

    assert register.episodes == [(1.0, 1), (6.0, 3), (10.0, 4)] * 2
    assert register.counters["env_steps"] == 16
    assert register.counters["episodes"] == 6
    assert register.counters["insert_wait_seconds"] == 1.5
    assert register.counters["epsilon"] == 0.25
    assert register.counters["policy_version"] == 0


def test_native_environments_do_not_count_their_resets(row_list):
    environments = make_environments(EnvConfig(id="CartPole-v1"), 8)

    register = run_loop(environments, row_list, lambda: bias_weights(3, 1, 2, 4), 200)

    rows = [row for stream in row_list.streams.values() for row in stream]
    lasts = sum(bool(row["terminated"] or row["truncated"]) for row in rows)
    assert register.counters["env_steps"] == len(rows) - lasts < 8 * 200
    assert lasts == len(register.episodes) > 0
    assert all(ret == length for ret, length in register.episodes)
