"""How fast one actor acts in Pong, and what takes its time."""

import sys
import threading
import time
from statistics import median
from typing import Any

import numpy as np

from benchmarks import acting
from mycelia_actor.environments.backend import make_fastest, measure
from mycelia_actor.environments.spaces import signature_of
from mycelia_actor.environments.vector import StepResult, VectorEnvironment
from mycelia_actor.loop import ActingLoop
from mycelia_actor.policies.action_values import make_action_values
from mycelia_actor.policies.epsilon_greedy import EpsilonGreedy
from mycelia_actor.policies.policy import ActionChoice, Policy
from mycelia_actor.policies.random_actions import RandomActions
from mycelia_actor.recorder import Recorder
from mycelia_core.config import EnvConfig, NetworkConfig, RunConfig
from mycelia_core.weights import Weights

PONG = EnvConfig(id="PongNoFrameskip-v4", preprocessing="atari")
ENVS = 8
PAIRS = 7


class SteadyTimer:
    """Counts steps from the tenth result on: resets and first calls are not what is measured."""

    def __init__(self, seconds: float, stop: threading.Event) -> None:
        """Stops the loop after `seconds` of steps."""
        self.rate, self.elapsed = 0.0, 0.0
        self._seconds, self._stop = seconds, stop
        self._results, self._env_steps, self._start = 0, 0, 0.0

    def add(self, choice: ActionChoice, result: StepResult) -> None:
        """Counts one step, and stops the loop when the time is up."""
        self._results += 1
        if self._results <= 10:
            self._start = time.perf_counter()
            return
        self._env_steps += result.step_count
        self.elapsed = time.perf_counter() - self._start
        self.rate = self._env_steps / self.elapsed
        if self.elapsed > self._seconds:
            self._stop.set()


def measure_pong(seconds: float) -> dict[str, Any]:
    """Returns the rate of random actions over the environments' own, and the CNN's split."""
    _, environments = make_fastest(PONG, ENVS)
    ratios = []
    for _ in range(PAIRS):
        raw = measure(environments, seconds / 2)
        policy = RandomActions(environments.action, ENVS, seed=1)
        ratios.append(_act(environments, policy, seconds / 2, {}) / raw)
    spread = f"{min(ratios):.2f} to {max(ratios):.2f}"
    print(f"Pong, random over raw: {median(ratios):.3f} ({spread})", file=sys.stderr)
    split: dict[str, float] = {}
    rate = _act(environments, make_nature_cnn(environments)[0], 2 * seconds, split)
    environments.close()
    shares = ", ".join(f"{name} {share:.1%}" for name, share in split.items())
    print(f"Pong, Nature CNN: {rate:,.0f} steps/s; of its time: {shares}", file=sys.stderr)
    return {
        "actor_pong_over_raw": round(median(ratios), 3),
        "actor_pong_cnn_steps_per_second": round(rate),
        "actor_pong_cnn_split": {name: round(share, 4) for name, share in split.items()},
    }


def make_nature_cnn(environments: VectorEnvironment) -> tuple[Policy, Weights]:
    """Returns a policy with the network of DQN, and its weights: 1.7 million numbers."""
    from mycelia_algorithms.networks.factory import build_q_network
    from mycelia_algorithms.networks.spec import QNetworkSpec

    network = NetworkConfig(hidden_sizes=(512,), convolutions=True)
    algorithm = {"name": "dqn", "gamma": 0.99, "frame_stack": 4, "dueling": True}
    config = RunConfig(name="pong", env=PONG, network=network, algorithm=algorithm)
    signature = signature_of(environments.observation, environments.action)
    values = make_action_values(signature, config, environments.count)
    spec = QNetworkSpec(
        observation_shape=(4, 84, 84),
        action_count=values.action_count,
        hidden_sizes=(512,),
        dueling=True,
        convolutions=True,
    )
    tensors = {
        name: tensor.numpy() for name, tensor in build_q_network(spec, seed=1).state_dict().items()
    }
    policy = EpsilonGreedy(values, np.full(environments.count, 0.1), np.random.default_rng(1))
    weights = Weights(1, 0, tensors)
    policy.use(weights)
    return policy, weights


class _Timed:
    """An object the time in one of whose methods is counted, once the loop is steady."""

    def __init__(self, owner: Any, method: str, timer: SteadyTimer) -> None:
        self._owner, self._inner, self._timer = owner, getattr(owner, method), timer
        self.seconds = 0.0
        setattr(self, method, self._call)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._owner, name)

    def _call(self, *arguments: Any) -> Any:
        start = time.perf_counter()
        result = self._inner(*arguments)
        if self._timer.elapsed:
            self.seconds += time.perf_counter() - start
        return result


def _act(
    environments: VectorEnvironment, policy: Policy, seconds: float, split: dict[str, float]
) -> float:
    """Returns steps per second of the actor's loop; fills in the share of each stage."""
    stop = threading.Event()
    timer = SteadyTimer(seconds, stop)
    recorder = Recorder(acting.Nowhere(), policy, environments.action)
    stages: dict[str, Any] = {
        "environments": _Timed(environments, "step", timer),
        "policy": _Timed(policy, "act", timer),
        "recording": _Timed(recorder, "record", timer),
    }
    loop = ActingLoop(*stages.values(), lambda: None, timer)
    loop.run(range(environments.count), stop)
    split |= {name: stage.seconds / timer.elapsed for name, stage in stages.items()}
    return timer.rate
