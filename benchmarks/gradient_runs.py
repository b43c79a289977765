"""Runs of many gradient workers on one machine, in an environment that sleeps.

Each worker is a process of the actor service in its gradient topology, all forked from one that has
imported torch, so that dozens fit.
"""

import contextlib
import multiprocessing
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

from benchmarks import sleepy_env
from mycelia_core.clients.gradients import GradientClient
from mycelia_core.rpc.errors import StatusError


def config_of(
    topology: str, workers: int, step_seconds: float, drop_workers: int = 0
) -> dict[str, Any]:
    """Returns the run's config: A3C, or A2C in rounds, of the same small network."""
    return {
        "name": "scaling",
        "topology": topology,
        "env": {
            "id": "benchmarks.sleepy_env:SleepyEnv",
            "kwargs": {"step_seconds": step_seconds},
        },
        "actor": {"count": workers, "envs_per_actor": 1},
        "gradients": {
            "optimizer": "rmsprop",
            "learning_rate": 1e-2,
            "epsilon": 1e-5,
            "drop_workers": drop_workers,
        },
        "algorithm": {
            "name": "a3c" if topology == "async-gradients" else "a2c",
            "gamma": 0.5,
            "rollout_steps": 20,
        },
        "network": {"hidden_sizes": [32]},
        "limits": {"max_env_steps": 100_000_000},
    }


def wait_for_update(client: GradientClient, seconds: float = 120.0) -> None:
    """Waits for the first gradient to be applied."""
    deadline = time.monotonic() + seconds
    while not client.info().update_count:
        if time.monotonic() > deadline:
            raise TimeoutError("no worker has pushed a gradient")
        time.sleep(0.02)


def act(address: str, slowness: float) -> None:
    """Runs one worker, as `python -m mycelia_actor` does, whose steps take longer by a factor."""
    sleepy_env.slowness = slowness
    from mycelia_actor.main import main as run_actor_service

    run_actor_service(["--join", address, "--exit-with-parent", "--log-level", "error"])


@contextlib.contextmanager
def fork_workers(address: str, count: int, last_slowness: float = 1.0) -> Iterator[list[int]]:
    """Starts workers, and waits for them to go when the run has finished; yields their pids.

    The last one's steps take `last_slowness` times as long as the others'.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["mycelia_actor.main", "mycelia_actor.gradients.worker"])
    factors = [1.0] * (count - 1) + [last_slowness]
    processes = [context.Process(target=act, args=(address, x), daemon=True) for x in factors]
    for process in processes:
        process.start()
    try:
        yield [process.pid or 0 for process in processes]
    finally:
        for process in processes:
            process.join(10)
            if process.is_alive():
                process.terminate()


@contextlib.contextmanager
def serve() -> Iterator[str]:
    """Starts a parameter server and yields its address."""
    process = subprocess.Popen(
        [sys.executable, "-m", "mycelia_param_server", "--log-level", "error"],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout
        yield process.stdout.readline().strip().removeprefix("ready address=")
    finally:
        with contextlib.suppress(StatusError):
            process.terminate()
        process.wait(10)
