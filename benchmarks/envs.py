"""How fast each backend steps environments, whether `auto` picks well, and what acting costs.

    python -m benchmarks.envs [--seconds 0.6] [--envs 1,4,16,64]
        [--only cartpole,cost,pong,cheetah,actor] [--json]

`rows` are steps per second of one actor's environments with nothing else done,
beside Gymnasium's own Sync and Async; medians, the backends taking turns.
`auto_over_best_min` is the worst case over environments and counts of: the rate of
the backend that `auto` picks, over the best. `actor_cartpole_steps_per_second` is one
actor process whose rows reach a replay process; `actor_pong_over_raw` a random policy
in Pong, rows recorded, over the environments alone; `actor_pong_cnn_split` what part
of its time an actor with the network of DQN gives to what.
"""

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterator
from statistics import median
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import gymnasium
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv

from benchmarks import acting
from benchmarks.pong import PONG, measure_pong
from mycelia_actor.environments.autoreset import adapt
from mycelia_actor.environments.backend import MAKERS, make_fastest, measure
from mycelia_actor.environments.make import MakeEnvironmentError, make_environment
from mycelia_actor.environments.vector import VectorEnvironment
from mycelia_core.config import EnvConfig

Row = dict[str, Any]

CARTPOLE = EnvConfig(id="CartPole-v1")
CHEETAH = EnvConfig(id="HalfCheetah-v5")
STEP_COSTS_US = (0, 20, 200, 1000)
ROUNDS = 3
"""Every rate is the median of so many, taken in turn."""

PAIRS, PAIR_SECONDS = 7, 0.3
"""Where `auto` did not pick the fastest, both are compared again: the median of so many pairs."""


def main() -> None:
    """Runs the benchmark."""
    parser = argparse.ArgumentParser(prog="benchmarks.envs")
    parser.add_argument("--seconds", type=float, default=0.6, help="of each measurement")
    parser.add_argument("--envs", default="1,4,16,64", help="how many environments, with commas")
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
    print("auto over best, worst:", result["auto_over_best_min"], file=sys.stderr)
    if arguments.json:
        print(json.dumps(result))


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
    rates: dict[str, list[float]] = {name: [] for name in there}
    for _ in range(ROUNDS):
        for name, environments in there.items():
            rates[name].append(measure(environments, seconds / ROUNDS))
    for environments in there.values():
        environments.close()
    return {name: median(found) for name, found in rates.items()}


def _auto_over_best(config: EnvConfig, count: int, rates: dict[str, float]) -> float:
    picked, environments = make_fastest(config, count)
    ours = {name: rate for name, rate in rates.items() if name in MAKERS}
    best = max(ours, key=ours.__getitem__)
    rival = None if picked == best else MAKERS[best](config, count)
    # The fastest of several is partly so by luck: two that differ are compared anew, in pairs.
    pairs = [
        measure(environments, PAIR_SECONDS) / measure(rival, PAIR_SECONDS)
        for _ in range(PAIRS if rival else 0)
    ]
    for made in filter(None, (environments, rival)):
        made.close()
    ratio = median(pairs) if pairs else 1.0
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


def _actor(seconds: float) -> dict[str, Any]:
    config = acting.make_config(16)
    cartpole = median(acting.inserting(config, 2 * seconds) for _ in range(ROUNDS))
    print(f"CartPole, one actor, rows in replay: {cartpole:,.0f} steps/s", file=sys.stderr)
    pong = measure_pong(seconds) if _can_make(PONG) else {"actor_pong_over_raw": None}
    return {"actor_cartpole_steps_per_second": round(cartpole), **pong}


if __name__ == "__main__":
    gymnasium.logger.min_level = gymnasium.logger.ERROR
    main()
