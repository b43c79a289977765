"""What double buffering gains, and what fetching new weights costs.

    python -m benchmarks.overlap [--seconds 2] [--envs 16] [--json]

`groups`: Pong with the Nature CNN, stepped by ale-py's vector environment, all
environments in one group and in two. While one group of two steps, actions are
chosen for the other. Both use the same number of threads and run by turns.
`weights`: the share of its time that an actor's loop gives to weights of 1.7
million parameters which change ten times a second, and how much slower the same
loop is with them than without, by turns.
"""

import argparse
import json
import os
import threading
import time
from statistics import median
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

from benchmarks import acting
from benchmarks.envs import PONG, make_nature_cnn
from mycelia_actor.actor import make_loop, make_recorders
from mycelia_actor.environments.backend import make_environments
from mycelia_actor.environments.vector import StepResult
from mycelia_actor.policies.policy import ActionChoice, Policy
from mycelia_core.config import ActorConfig, EnvConfig, NetworkConfig, RunConfig
from mycelia_core.weights import Weights

PUBLISH_SECONDS = 0.1
ROUNDS = 3


def main() -> None:
    """Runs the benchmark."""
    parser = argparse.ArgumentParser(prog="benchmarks.overlap")
    parser.add_argument("--seconds", type=float, default=2.0, help="of each run")
    parser.add_argument("--envs", type=int, default=16, help="environments of the actor")
    parser.add_argument("--json", action="store_true", help="print JSON as the last line")
    arguments = parser.parse_args()
    result = _groups(arguments.envs, arguments.seconds) | _weights(arguments.seconds)
    for name, value in result.items():
        print(f"{name:>36}: {value:,}")
    if arguments.json:
        print(json.dumps(result))


class Publisher:
    """Gives out the same weights under a new version ten times a second."""

    def __init__(self, weights: Weights) -> None:
        self._weights = weights
        self._version = 1

    def __call__(self) -> Weights:
        """Returns the newest."""
        version = 1 + int(time.monotonic() / PUBLISH_SECONDS)
        if version != self._version:
            self._version = version
            # A fresh copy, as the network would bring it.
            tensors = {name: array.copy() for name, array in self._weights.tensors.items()}
            self._weights = Weights(version, 0, tensors)
        return self._weights


class SteadyTimer:
    """Counts steps from the tenth result on: resets and first calls are not what is measured."""

    def __init__(self, seconds: float, stop: threading.Event) -> None:
        self.rate = 0.0
        self._seconds, self._stop = seconds, stop
        self._results, self._env_steps, self._start = 0, 0, 0.0

    def add(self, choice: ActionChoice, result: StepResult) -> None:
        """Counts one step, and stops the loop when the time is up."""
        self._results += 1
        if self._results <= 10:
            self._start = time.perf_counter()
            return
        self._env_steps += result.step_count
        elapsed = time.perf_counter() - self._start
        self.rate = self._env_steps / elapsed
        if elapsed > self._seconds:
            self._stop.set()


class Timed:
    """A policy whose time for taking in weights is counted."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self.act, self.greedy_value = policy.act, policy.greedy_value
        self.seconds, self.count = 0.0, 0

    def use(self, weights: Weights) -> None:
        """Takes in weights."""
        start = time.perf_counter()
        self._policy.use(weights)
        self.seconds += time.perf_counter() - start
        self.count += 1


def make_config(env: EnvConfig, envs: int, groups: int) -> RunConfig:
    """Returns the config of a run with one actor."""
    return RunConfig(
        name="overlap",
        env=env,
        actor=ActorConfig(count=1, envs_per_actor=envs, groups=groups),
        network=NetworkConfig(hidden_sizes=(512,), convolutions=True),
        algorithm={"name": "dqn", "gamma": 0.99, "n_step": 3, "frame_stack": 4, "dueling": True},
    )


def _run(config: RunConfig, seconds: float, *, publishes: bool = False) -> tuple[float, Timed]:
    """Returns steps per second of an actor's loop, and its policy."""
    environments = make_environments(config.env, config.actor.envs_per_actor, config.actor.groups)
    inner, weights = make_nature_cnn(environments)
    policy, stop = Timed(inner), threading.Event()
    timer = SteadyTimer(seconds, stop)
    recorders = make_recorders(config, environments, policy, acting.Nowhere())
    newest = Publisher(weights) if publishes else lambda: weights
    loop = make_loop(environments, policy, recorders, newest, timer)
    loop.run(range(environments.count), stop)
    environments.close()
    return timer.rate, policy


def _groups(envs: int, seconds: float) -> dict[str, Any]:
    rates: dict[int, list[float]] = {1: [], 2: []}
    for _ in range(ROUNDS):
        for groups, found in rates.items():
            found.append(_run(make_config(PONG, envs, groups), seconds)[0])
    gains = [two / one for one, two in zip(rates[1], rates[2], strict=True)]
    return {
        "pong_one_group_steps_per_second": round(median(rates[1])),
        "pong_two_groups_steps_per_second": round(median(rates[2])),
        "double_buffering_gain": round(median(gains), 3),
    }


def _weights(seconds: float) -> dict[str, Any]:
    config, shares, slower = make_config(PONG, 8, 1), [], []
    for _ in range(ROUNDS):
        quiet, _ = _run(config, seconds)
        busy, policy = _run(config, seconds, publishes=True)
        shares.append(policy.seconds / seconds)
        slower.append(1 - busy / quiet)
    return {
        "weight_refresh_share_of_time": round(median(shares), 5),
        "weight_refresh_slows_by": round(float(np.median(slower)), 4),
    }


if __name__ == "__main__":
    main()
