"""How environment steps per second grow with the number of gradient workers.

    python -m benchmarks.scaling [--workers 1 2 4 8 16 32] [--seconds 10] [--json]

Takes nine minutes or so.

Each worker is a process of the actor service in its gradient topology, all forked from one that
has imported torch, so that 32 fit. The environment sleeps through each of its steps, so that two
cores can host them; what is lost is what workers wait for: the parameter server, their round, a
core. `efficiency` is steps per second over the worker count times those of one worker;
`seconds_to_threshold` counts from the first applied update until the last 50 episodes have a mean
return of 18 of 20, null if the time was up before; `speed_up` is that time of one worker over that
of several, asynchronously, beside the paper's. `straggler` is what a worker that is ten times
slower leaves of the rate at which gradients of each of the others are applied; see
`benchmarks/stragglers.py`. With `--json` the last line is one object.
"""

import argparse
import json
import time
from typing import Any

from benchmarks.gradient_runs import config_of, fork_workers, serve, wait_for_update
from benchmarks.stragglers import measure_stragglers
from mycelia.run.v1 import run_pb2
from mycelia_core.clients.gradients import GradientClient
from mycelia_core.clients.run import RunClient

THRESHOLD = 18.0
EPISODES = 50
PAPER = {2: 2.1, 4: 3.7, 8: 6.9, 16: 12.5}
"""A3C's speed-ups in time to a reference score over 1 thread, mean of seven Atari games: Mnih et
al. 2016, table 2."""

Figures = dict[str, dict[str, float | None]]


def main() -> None:
    """Runs the benchmark."""
    parser = argparse.ArgumentParser(prog="benchmarks.scaling")
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 4, 8, 16, 32])
    parser.add_argument("--seconds", type=float, default=10.0, help="of each measurement")
    parser.add_argument(
        "--limit", type=float, default=90.0, help="seconds to the threshold at most"
    )
    parser.add_argument("--step-seconds", type=float, default=0.05, help="of the environment")
    parser.add_argument("--json", action="store_true", help="print JSON as the last line")
    arguments = parser.parse_args()
    results: dict[str, Any] = {"step_seconds": arguments.step_seconds}
    for name in ("async", "sync"):
        results[name] = measure_all(f"{name}-gradients", arguments)
    results["speed_up"] = compare(results["async"]["seconds_to_threshold"])
    results["straggler"] = measure_stragglers(arguments.seconds)
    if arguments.json:
        print(json.dumps(results))


def measure_all(topology: str, arguments: argparse.Namespace) -> Figures:
    """Returns steps per second, efficiency and time to threshold by worker count."""
    figures: Figures = {"steps_per_second": {}, "efficiency": {}, "seconds_to_threshold": {}}
    one = 0.0
    for workers in arguments.workers:
        rate, seconds = measure(topology, workers, arguments)
        one = one or rate / workers
        key = str(workers)
        figures["steps_per_second"][key] = round(rate, 1)
        figures["efficiency"][key] = round(rate / (workers * one), 3)
        figures["seconds_to_threshold"][key] = seconds
        print(
            f"{topology:>15} {workers:>3} workers: {rate:8.1f} steps/s, "
            f"efficiency {figures['efficiency'][key]:.3f}, {seconds} s to the threshold",
            flush=True,
        )
    return figures


def compare(seconds: dict[str, float | None]) -> dict[str, dict[str, float | None]]:
    """Prints and returns how many times sooner workers are at the threshold than one of them."""
    one, ours = seconds.get("1"), dict[str, float | None]()
    for workers, paper in PAPER.items():
        several = seconds.get(str(workers))
        ours[str(workers)] = round(one / several, 2) if one and several else None
        print(f"{workers:>3} workers: {ours[str(workers)]} times sooner, in the paper {paper}")
    return {"ours": ours, "paper": {str(n): x for n, x in PAPER.items()}}


def measure(
    topology: str, workers: int, arguments: argparse.Namespace
) -> tuple[float, float | None]:
    """Returns steps per second once all workers have come, and seconds to the threshold."""
    with serve() as address, RunClient(address) as client:
        config = json.dumps(config_of(topology, workers, arguments.step_seconds))
        run_id = client.create_run("scaling", config).run_id
        with fork_workers(address, workers), GradientClient(address, run_id) as gradients:
            wait_for_update(gradients)
            begin = time.monotonic()
            reached: float | None = None
            marks: list[tuple[float, int]] = []
            while True:
                now, response = time.monotonic(), client.get_run()
                if reached is None and has_learned(response.progress):
                    reached = round(now - begin, 2)
                joined = sum(m.role == run_pb2.ROLE_ACTOR for m in response.members)
                if joined == workers and response.progress.env_steps:
                    marks.append((now, response.progress.env_steps))
                measured = marks and now - marks[0][0] >= arguments.seconds + 1
                if measured and (reached is not None or now - begin > arguments.limit):
                    break
                time.sleep(0.25)
            client.finish_run(run_pb2.OUTCOME_STOPPED)
    # The first second, in which the last worker imports and resets, is left out.
    settled = [mark for mark in marks if mark[0] >= marks[0][0] + 1]
    (first_time, first), (last_time, last) = settled[0], settled[-1]
    return (last - first) / (last_time - first_time), reached


def has_learned(progress: run_pb2.Progress) -> bool:
    """Whether the last episodes reach the threshold."""
    returns = [episode.episode_return for episode in progress.recent_episodes][-EPISODES:]
    return len(returns) == EPISODES and sum(returns) / EPISODES >= THRESHOLD


if __name__ == "__main__":
    main()
