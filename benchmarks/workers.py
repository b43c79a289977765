"""Where the time of a worker that computes gradients goes, before and after what made it faster.

    python -m benchmarks.workers [--preset a3c-pong-cpu] [--seconds 3] [--rounds 3] [--json]

One worker's environments, policy, loss and backward pass, without a server. `one-by-one` steps single
environments with float32 convolutions; `vector` lets `auto` pick the backend; `bfloat16` has the
convolutions compute in 16 bits as well. The variants take turns, the fastest round of each counts;
`microseconds` are of an env step, in CPU time of the whole process, and so are the shares.
"""  # noqa: E501

import argparse
import json
import os
import time
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import torch

from mycelia_actor.environments.backend import make_environments
from mycelia_actor.environments.vector import StepResult, VectorEnvironment
from mycelia_actor.gradients.collector import RolloutCollector
from mycelia_actor.gradients.spaces import network_spec
from mycelia_actor.policies.policy import ActionChoice
from mycelia_algorithms.gradient_source import GradientSource
from mycelia_algorithms.registry import load_gradient_source, parse_config
from mycelia_core.config import RunConfig

VARIANTS = {
    "one-by-one": ("sync", "float32"),
    "vector": ("auto", "float32"),
    "bfloat16": ("auto", "bfloat16"),
}
"""Backend of the environments, and what convolutions compute in."""

STAGES = {"environments": "step", "acting": "act", "gradient": "gradient"}


class Nobody:
    """Is told of steps and does nothing."""

    def add(self, choice: ActionChoice, result: StepResult) -> None:
        """Does nothing."""


class Worker:
    """A worker without a server, whose stages are timed."""

    def __init__(self, config: RunConfig) -> None:
        count = config.actor.envs_per_actor
        self._environments = make_environments(config.env, count)
        self._source = make_source(config, self._environments)
        self._spent: dict[str, float] = {}
        owners = {
            "environments": self._environments,
            "acting": self._source,
            "gradient": self._source,
        }
        for name, owner in owners.items():
            self._time(name, owner, STAGES[name])
        self._collector = RolloutCollector(
            self._environments, self._source, range(count), Nobody(), clip_rewards=True
        )
        self._unroll()

    def run(self, seconds: float) -> dict[str, float]:
        """Returns microseconds of CPU time for an env step: of each stage, and in all."""
        self._spent = dict.fromkeys(STAGES, 0.0)
        env_steps, start, end = 0, time.process_time(), time.perf_counter() + seconds
        while time.perf_counter() < end:
            env_steps += self._unroll()
        self._spent["total"] = time.process_time() - start
        return {name: 1e6 * spent / env_steps for name, spent in self._spent.items()}

    def close(self) -> None:
        """Closes the environments."""
        self._environments.close()

    def _unroll(self) -> int:
        rollout = self._collector.collect(1)
        for index in range(self._source.begin(rollout)):
            self._source.gradient(index)
        return rollout.sample_count

    def _time(self, name: str, owner: Any, method: str) -> None:
        inner: Callable[..., Any] = getattr(owner, method)

        def timed(*arguments: Any) -> Any:
            start = time.process_time()
            result = inner(*arguments)
            self._spent[name] = self._spent.get(name, 0.0) + time.process_time() - start
            return result

        setattr(owner, method, timed)


def main() -> None:
    """Runs the benchmark."""
    parser = argparse.ArgumentParser(prog="benchmarks.workers")
    parser.add_argument("--preset", default="a3c-pong-cpu")
    parser.add_argument("--seconds", type=float, default=3.0, help="of each round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true", help="print JSON as the last line")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    workers = {name: Worker(load(arguments.preset, *how)) for name, how in VARIANTS.items()}
    rounds = [
        {name: worker.run(arguments.seconds) for name, worker in workers.items()}
        for _ in range(arguments.rounds)
    ]
    for worker in workers.values():
        worker.close()
    best = {name: min((r[name] for r in rounds), key=lambda t: t["total"]) for name in workers}
    for name, times in best.items():
        stages = ", ".join(f"{stage} {spent:.0f}" for stage, spent in times.items())
        print(f"{name:>12}: us of CPU time for an env step: {stages}")
    if arguments.json:
        print(json.dumps(report(arguments.preset, best)))


def load(preset: str, backend: str, dtype: str) -> RunConfig:
    """Returns a preset with another backend and dtype."""
    path = Path(__file__).parents[1] / "configs" / f"{preset}.toml"
    values = tomllib.loads(path.read_text())
    values["env"]["backend"] = backend
    values["network"]["convolution_dtype"] = dtype
    return RunConfig.model_validate(values)


def make_source(config: RunConfig, environments: VectorEnvironment) -> GradientSource:
    """Returns what acts and differentiates."""
    algorithm = parse_config(config.algorithm)
    network = network_spec(config.network, environments.observation, environments.action)
    return load_gradient_source(algorithm.name)(algorithm, network=network, seed=1, worker_seed=2)


def report(preset: str, best: dict[str, dict[str, float]]) -> dict[str, Any]:
    """Returns times, shares, and how many times faster the last variant is, by stage."""
    first, last = best[next(iter(VARIANTS))], best[list(VARIANTS)[-1]]
    return {
        "preset": preset,
        "microseconds": {name: {k: round(v, 1) for k, v in t.items()} for name, t in best.items()},
        "shares": {
            name: {stage: round(times[stage] / times["total"], 3) for stage in STAGES}
            for name, times in best.items()
        },
        "speedup": {stage: round(first[stage] / last[stage], 2) for stage in first},
        "gradient_speedup": round(best["vector"]["gradient"] / last["gradient"], 2),
    }


if __name__ == "__main__":
    main()
