"""What double buffering gains, and what fetching new weights costs.

    python -m benchmarks.overlap [--seconds 1] [--envs 16] [--only waits_5ms] [--json]

`groups`: an actor with the Nature CNN, all its environments stepped together or in
groups of which one is stepped while actions are chosen for another, by turns and with
the same threads and processes. The cases:

    waits_Nms       a worker process for each environment, a step of which sleeps N ms
    works_1ms       a worker process for each core; a step keeps one busy for 1 ms
    pong            ale-py's vector environment, in one group or two
    pong_beside     the same while another process keeps a core busy, as a learner does

`auto_groups` is what `actor.groups=0` takes, `auto_over_best` what comes of it.
`weights`: the share of its time that an actor's loop gives to weights of 1.7
million parameters which change ten times a second (`weight_refresh_share_of_time`),
and how much slower the same loop is while they come from a parameter server than
without, by turns (`weight_refresh_slows_by`).
"""

import argparse
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from statistics import median
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from benchmarks import acting
from benchmarks.pong import PONG, SteadyTimer, make_nature_cnn
from benchmarks.refresh import Timed, measure_refresh
from mycelia_actor.actor import make_loop, make_recorders
from mycelia_actor.environments.backend import make_environments
from mycelia_actor.environments.group import Group, wait_for_any
from mycelia_actor.environments.grouping import count_groups
from mycelia_actor.environments.joined_groups import JoinedGroups
from mycelia_core.config import ActorConfig, EnvConfig, NetworkConfig, RunConfig
from mycelia_core.weights import Weights


def main() -> None:
    """Runs the benchmark."""
    parser = argparse.ArgumentParser(prog="benchmarks.overlap")
    parser.add_argument("--seconds", type=float, default=1.0, help="of each run")
    parser.add_argument("--envs", type=int, default=16, help="environments of the actor")
    parser.add_argument("--rounds", type=int, default=7, help="the median of which is taken")
    parser.add_argument("--only", help="cases, with commas; weights is one; default: all")
    parser.add_argument("--json", action="store_true", help="print JSON as the last line")
    arguments = parser.parse_args()
    cases = make_cases(arguments.envs)
    only = arguments.only.split(",") if arguments.only else [*cases, "weights"]
    rows = [
        _groups(name, cases[name], arguments.envs, arguments.rounds, arguments.seconds)
        for name in only
        if name in cases
    ]
    result: dict[str, Any] = {"groups": rows}
    result["double_buffering_gain"] = {row["case"]: row["gain"] for row in rows}
    if "weights" in only:
        result |= _weights(arguments.rounds, arguments.seconds)
    print(json.dumps(result, indent=None if arguments.json else 2))


def make_cases(envs: int) -> dict[str, EnvConfig]:
    """Returns the environments of each case."""

    def costly(processes: int, **cost: float) -> EnvConfig:
        name, kwargs = "benchmarks.costly_env:CostlyEnv", {"screen": True, **cost}
        return EnvConfig(id=name, kwargs=kwargs, backend="process", processes=processes)

    waits = {f"waits_{ms}ms": costly(envs, step_wait_us=1000.0 * ms) for ms in (1, 3, 5, 10)}
    cases = {**waits, "works_1ms": costly(0, step_cost_us=1000.0)}
    return {**cases, "pong": PONG, "pong_beside": PONG}


def make_config(env: EnvConfig, envs: int, groups: int) -> RunConfig:
    """Returns the config of a run with one actor."""
    return RunConfig(
        name="overlap",
        env=env,
        actor=ActorConfig(count=1, envs_per_actor=envs, groups=groups),
        network=NetworkConfig(hidden_sizes=(512,), convolutions=True),
        algorithm={"name": "dqn", "gamma": 0.99, "n_step": 3, "frame_stack": 4, "dueling": True},
    )


class Side:
    """An actor without a replay service, whose loop is run again and again."""

    def __init__(self, config: RunConfig) -> None:
        self.config = config
        self._environments = make_environments(
            config.env, config.actor.envs_per_actor, config.actor.groups
        )
        inner, self.weights = make_nature_cnn(self._environments)
        self.policy = Timed(inner)

    def run(self, seconds: float, newest: Callable[[], Weights | None] | None = None) -> float:
        """Returns steps per second, with the weights that `newest` returns or always the same."""
        stop = threading.Event()
        timer = SteadyTimer(seconds, stop)
        environments = self._environments
        recorders = make_recorders(self.config, environments, self.policy, acting.Nowhere())
        loop = make_loop(
            self.config,
            environments,
            self.policy,
            recorders,
            newest_weights=newest or (lambda: self.weights),
            reporter=timer,
        )
        loop.run(range(environments.count), stop)
        if isinstance(environments, JoinedGroups):
            _finish_steps(environments.groups)
        return timer.rate

    def close(self) -> None:
        """Closes the environments."""
        self._environments.close()


def _finish_steps(groups: Sequence[Group]) -> None:
    """Waits for the steps that were under way when a loop ended."""
    end = time.monotonic() + 10.0
    while (busy := [group for group in groups if not group.waits]) and time.monotonic() < end:
        wait_for_any(busy, 0.1)
        for group in busy:
            group.poll()


def _groups(case: str, env: EnvConfig, envs: int, rounds: int, seconds: float) -> dict[str, Any]:
    sides = {groups: Side(make_config(env, envs, groups)) for groups in (1, 2)}
    rates: dict[int, list[float]] = {groups: [] for groups in sides}
    with _busy_core() if case.endswith("beside") else nullcontext():
        for _ in range(rounds):
            for groups, side in sides.items():
                rates[groups].append(side.run(seconds))
    for side in sides.values():
        side.close()
    gains = [two / one for one, two in zip(rates[1], rates[2], strict=True)]
    gain = median(gains)
    auto = 2 if env.backend == "process" else count_groups(make_config(env, envs, 0))
    row = {
        "case": case,
        "envs": envs,
        "together_steps_per_second": round(median(rates[1])),
        "groups_steps_per_second": round(median(rates[2])),
        "gain": round(gain, 3),
        "gain_min": round(min(gains), 3),
        "gain_max": round(max(gains), 3),
        "auto_groups": auto,
        "auto_over_best": round((gain if auto > 1 else 1.0) / max(gain, 1.0), 3),
    }
    print(row, file=sys.stderr, flush=True)
    return row


@contextmanager
def _busy_core() -> Iterator[None]:
    """Keeps one core busy meanwhile."""
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as process:
        try:
            yield
        finally:
            process.kill()


def _weights(rounds: int, seconds: float) -> dict[str, Any]:
    side = Side(make_config(PONG, 8, 1))
    result = measure_refresh(side, rounds, seconds)
    side.close()
    return result


if __name__ == "__main__":
    main()
