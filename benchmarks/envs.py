"""How fast each backend steps environments, whether `auto` picks well, and what acting costs.

    python -m benchmarks.envs [--seconds 0.3] [--envs 1,8,64] [--only cartpole,cost,pong,cheetah,actor] [--json]

`rows` are steps per second of one actor's environments with nothing else done,
beside Gymnasium's own Sync and Async. `auto_over_best_min` is the worst case over
environments and counts of: the rate of the backend that `auto` picks, over the best.
`actor_cartpole_steps_per_second` is one actor process whose rows reach a replay
process; `actor_pong_over_raw` a random policy in Pong, rows recorded, over the
environments alone.
"""  # noqa: E501

import argparse
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import gymnasium
import numpy as np
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv

from benchmarks import acting
from mycelia_actor.environments.autoreset import adapt
from mycelia_actor.environments.backend import MAKERS, make_fastest, measure
from mycelia_actor.environments.make import MakeEnvironmentError, make_environment
from mycelia_actor.environments.spaces import signature_of
from mycelia_actor.environments.vector import VectorEnvironment
from mycelia_actor.loop import ActingLoop
from mycelia_actor.policies.action_values import make_action_values
from mycelia_actor.policies.epsilon_greedy import EpsilonGreedy
from mycelia_actor.policies.policy import Policy
from mycelia_actor.policies.random_actions import RandomActions
from mycelia_actor.recorder import Recorder
from mycelia_core.config import EnvConfig, NetworkConfig, RunConfig
from mycelia_core.weights import Weights

Row = dict[str, Any]

CARTPOLE = EnvConfig(id="CartPole-v1")
PONG = EnvConfig(id="PongNoFrameskip-v4", preprocessing="atari")
CHEETAH = EnvConfig(id="HalfCheetah-v5")
STEP_COSTS_US = (0, 20, 200, 1000)
ROUNDS = 2
"""Every rate is the best of so many, taken in turn: other processes only ever slow one down."""


def main() -> None:
    """Runs the benchmark."""
    parser = argparse.ArgumentParser(prog="benchmarks.envs")
    parser.add_argument("--seconds", type=float, default=0.3, help="of each measurement")
    parser.add_argument("--envs", default="1,8,64", help="how many environments, with commas")
    parser.add_argument("--only", default="cartpole,cost,pong,cheetah,actor")
    parser.add_argument("--json", action="store_true", help="print JSON as the last line")
    arguments = parser.parse_args()
    counts = [int(word) for word in arguments.envs.split(",")]
    only = arguments.only.split(",")
    rows, ratios = [], []
    for name, config, cost in _cases(only):
        for count in counts:
            rates = _measure_all(config, count, arguments.seconds)
            for backend, rate in rates.items():
                rows.append(_row(backend, name, count, cost, rate))
            ratios.append(_auto_over_best(config, count, rates))
    result: dict[str, Any] = {"rows": rows, "auto_over_best_min": min(ratios, default=None)}
    if "actor" in only:
        result |= _actor(max(1.0, arguments.seconds))
    print(json.dumps(result) if arguments.json else f"auto over best, worst: {min(ratios):.2f}")


def _cases(only: list[str]) -> Iterator[tuple[str, EnvConfig, int]]:
    if "cartpole" in only:
        yield CARTPOLE.id, CARTPOLE, 0
    if "cost" in only:
        for cost in STEP_COSTS_US:
            costly = "benchmarks.costly_env:CostlyEnv"
            yield "Costly", EnvConfig(id=costly, kwargs={"step_cost_us": cost}), cost
    if "pong" in only and _can_make(PONG):
        yield "Pong", PONG, 0
    if "cheetah" in only and _can_make(CHEETAH):
        yield CHEETAH.id, CHEETAH, 0


def _can_make(config: EnvConfig) -> bool:
    try:
        make_environment(config).close()
    except MakeEnvironmentError as error:
        print(f"passed over: {error}", file=sys.stderr)
        return False
    return True


def _gymnasium(kind: Callable[..., Any]) -> Callable[[EnvConfig, int], VectorEnvironment]:
    def make(config: EnvConfig, count: int) -> VectorEnvironment:
        return adapt(kind([lambda: make_environment(config)] * count))

    return make


def _measure_all(config: EnvConfig, count: int, seconds: float) -> dict[str, float]:
    makers = {
        **MAKERS,
        "gymnasium-sync": _gymnasium(SyncVectorEnv),
        "gymnasium-async": _gymnasium(AsyncVectorEnv),
    }
    made = {name: make(config, count) for name, make in makers.items()}
    there = {name: environments for name, environments in made.items() if environments}
    rates = dict.fromkeys(there, 0.0)
    for _ in range(ROUNDS):
        for name, environments in there.items():
            rates[name] = max(rates[name], measure(environments, seconds / ROUNDS))
    for environments in there.values():
        environments.close()
    return rates


def _auto_over_best(config: EnvConfig, count: int, rates: dict[str, float]) -> float:
    picked, environments = make_fastest(config, count)
    environments.close()
    ours = {name: rate for name, rate in rates.items() if name in MAKERS}
    ratio = rates[picked] / max(ours.values())
    best = max(ours, key=ours.__getitem__)
    print(f"{'':>24} auto picks {picked}, the best is {best}: {ratio:.2f}", file=sys.stderr)
    return round(ratio, 3)


def _row(backend: str, env: str, count: int, cost: int, rate: float) -> Row:
    print(
        f"{env:>16} {cost:>5} us {count:>3} envs  {backend:>16}: {rate:>9,.0f} steps/s",
        file=sys.stderr,
    )
    return {
        "backend": backend,
        "env": env,
        "envs": count,
        "step_cost_us": cost,
        "steps_per_second": round(rate),
    }


def _actor(seconds: float) -> dict[str, float | None]:
    config = acting.make_config(16)
    cartpole = max(acting.inserting(config, 2 * seconds) for _ in range(ROUNDS))
    print(f"CartPole, one actor, rows in replay: {cartpole:,.0f} steps/s", file=sys.stderr)
    over_raw = _pong_over_raw(seconds) if _can_make(PONG) else None
    return {"actor_cartpole_steps_per_second": round(cartpole), "actor_pong_over_raw": over_raw}


def _pong_over_raw(seconds: float) -> float:
    """Returns the rate with a random policy and rows recorded, over the environments' own."""
    ratios = []
    for _ in range(3):
        _, environments = make_fastest(PONG, 8)
        raw = measure(environments, seconds)
        random = _act(environments, RandomActions(environments.action, 8, seed=1), seconds, {})
        ratios.append(random / raw)
        environments.close()
    split: dict[str, float] = {}
    _, environments = make_fastest(PONG, 8)
    rate = _act(environments, make_nature_cnn(environments)[0], seconds, split)
    environments.close()
    shares = ", ".join(f"{name} {share:.0%}" for name, share in split.items())
    print(f"Pong, 8 environments: random over raw {max(ratios):.2f}", file=sys.stderr)
    print(f"Pong, Nature CNN: {rate:,.0f} steps/s; of its time: {shares}", file=sys.stderr)
    return round(float(np.median(ratios)), 3)


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


def _act(
    environments: VectorEnvironment, policy: Policy, seconds: float, split: dict[str, float]
) -> float:
    """Returns steps per second of the actor's loop; fills in the share of each stage."""
    spent: dict[str, float] = {}
    stop = threading.Event()
    timer = acting.Timer(seconds, stop)
    recorder = Recorder(acting.Nowhere(), policy, environments.action)
    _time(spent, "environments", environments, "step")
    _time(spent, "policy", policy, "act")
    _time(spent, "recording", recorder, "record")
    loop = ActingLoop(environments, policy, recorder, lambda: None, timer)
    start = time.perf_counter()
    loop.run(range(environments.count), stop)
    total = time.perf_counter() - start
    split |= {name: value / total for name, value in spent.items()}
    return timer.env_steps / total


def _time(spent: dict[str, float], name: str, owner: Any, method: str) -> None:
    inner = getattr(type(owner), method).__get__(owner)
    spent[name] = 0.0

    def timed(*arguments: Any) -> Any:
        start = time.perf_counter()
        try:
            return inner(*arguments)
        finally:
            spent[name] += time.perf_counter() - start

    setattr(owner, method, timed)


if __name__ == "__main__":
    gymnasium.logger.min_level = gymnasium.logger.ERROR
    main()
