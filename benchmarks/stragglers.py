"""What one worker that is ten times slower costs the others.

Four workers, of whose gradients each takes 0.2 s; then the same with one of them slowed down. With
gradients applied as they come the others are to lose nothing; in rounds they wait, unless the round
may close without it (`gradients.drop_workers=1`). Run by `python -m benchmarks.scaling`.
"""

import json
import time
from collections.abc import Iterable

from benchmarks.gradient_runs import config_of, fork_workers, serve, wait_for_update
from mycelia.run.v1 import run_pb2
from mycelia_core.clients.gradients import GradientClient
from mycelia_core.clients.run import RunClient

WORKERS = 4
SLOWNESS = 10.0
STEP_SECONDS = 0.01
SETTLE_SECONDS = 2.0
"""From the moment that all have come until counting begins."""

CASES = {
    "async": ("async-gradients", 0),
    "sync, none dropped": ("sync-gradients", 0),
    "sync, one dropped": ("sync-gradients", 1),
}


def measure_stragglers(seconds: float) -> dict[str, float | int | dict[str, float]]:
    """Prints and returns gradients applied per second of each other worker, and what is left."""
    results: dict[str, float | int | dict[str, float]] = {
        "step_seconds": STEP_SECONDS,
        "workers": WORKERS,
        "slowness": SLOWNESS,
    }
    even = {
        topology: measure(topology, 0, 1.0, seconds)
        for topology in ("async-gradients", "sync-gradients")
    }
    for name, (topology, dropped) in CASES.items():
        slowed = measure(topology, dropped, SLOWNESS, seconds)
        figures = {
            "even_per_second": round(even[topology], 3),
            "slowed_per_second": round(slowed, 3),
            "kept": round(slowed / even[topology], 3),
        }
        results[name.replace(", ", "_").replace(" ", "_")] = figures
        print(f"{name:>18}: a slow worker leaves the others {figures['kept']:.1%} of their rate")
    return results


def measure(topology: str, dropped: int, slowness: float, seconds: float) -> float:
    """Returns the rate at which gradients of each worker but the last are applied."""
    config = json.dumps(config_of(topology, WORKERS, STEP_SECONDS, dropped))
    with serve() as address, RunClient(address) as client:
        run_id = client.create_run("stragglers", config).run_id
        with (
            fork_workers(address, WORKERS, slowness) as pids,
            GradientClient(address, run_id) as gradients,
        ):
            wait_for_update(gradients)
            wait_for_all(client)
            time.sleep(SETTLE_SECONDS)
            start, before = time.monotonic(), applied(client, pids[:-1])
            time.sleep(seconds)
            rate = (applied(client, pids[:-1]) - before) / (time.monotonic() - start)
            client.finish_run(run_pb2.OUTCOME_STOPPED)
    return rate / (WORKERS - 1)


def wait_for_all(client: RunClient, seconds: float = 60.0) -> None:
    """Waits until every worker has reported."""
    deadline = time.monotonic() + seconds
    while sum("applied_gradients" in m.counters for m in client.get_run().members) < WORKERS:
        if time.monotonic() > deadline:
            raise TimeoutError("not all workers have come")
        time.sleep(0.05)


def applied(client: RunClient, pids: Iterable[int]) -> float:
    """Returns how many gradients of these processes have been applied so far."""
    wanted = set(pids)
    members = [m for m in client.get_run().members if m.pid in wanted]
    return sum(member.counters["applied_gradients"] for member in members)
