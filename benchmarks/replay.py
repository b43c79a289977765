"""How fast the replay service is, through its real server and client over loopback.

    python -m benchmarks.replay [--seconds 3] [--runs 3] [--json]

The server runs in a process of its own, the client in this one. Prints rows per
second inserted, items per second sampled and priorities per second updated; the
median of several runs, and their range. With `--json` the last line is one object.
"""

import argparse
import asyncio
import json
import multiprocessing
import statistics
import time
from collections.abc import Callable
from multiprocessing.connection import Connection

import numpy as np

from mycelia_core.clients.replay import ReplayClient
from mycelia_core.config import TableConfig, WindowConfig
from mycelia_core.specs import ColumnSpec, Signature
from mycelia_replay.gate import Gate
from mycelia_replay.server import ReplayServer
from mycelia_replay.table import Table

ENVS = 16
CHUNK_ROWS = 16
EPISODE_ROWS = 201
BATCH_SIZE = 256
RUN_ID = "benchmark"
SIGNATURE = Signature.of(
    [
        ColumnSpec("observation", np.dtype(np.float32), (4,)),
        ColumnSpec("action", np.dtype(np.int64), (), 2),
        ColumnSpec("policy_version", np.dtype(np.int64)),
    ]
)
CONFIG = TableConfig(capacity_rows=200_000, window=WindowConfig(bootstrap_rows=3))


def main() -> None:
    """Runs the benchmark."""
    parser = argparse.ArgumentParser(prog="benchmarks.replay")
    parser.add_argument("--seconds", type=float, default=3.0, help="of each run")
    parser.add_argument("--runs", type=int, default=3, help="the median of which is taken")
    parser.add_argument("--json", action="store_true", help="print JSON as the last line")
    arguments = parser.parse_args()
    rates = measure(arguments.runs, arguments.seconds)
    medians = {name: round(statistics.median(values)) for name, values in rates.items()}
    ranges = {name: [round(min(values)), round(max(values))] for name, values in rates.items()}
    for name, median in medians.items():
        low, high = ranges[name]
        print(f"{name:>14}: {median:>9,} per second  (from {low:,} to {high:,})")
    if arguments.json:
        print(json.dumps({"ours": medians, "ranges": ranges}))


def measure(runs: int, seconds: float) -> dict[str, list[float]]:
    """Returns the rates of each run: rows, items and priorities per second."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=serve, args=(theirs,), daemon=True)
    process.start()
    rates: dict[str, list[float]] = {"insert_small": [], "sample_small": [], "update_small": []}
    try:
        with ReplayClient(ours.recv(), RUN_ID) as client:
            for run in range(runs):
                rates["insert_small"].append(insert(client, run, seconds))
                rates["sample_small"].append(sample(client, seconds))
                rates["update_small"].append(update(client, seconds))
    finally:
        ours.send("stop")
        process.join(timeout=10)
    return rates


def insert(client: ReplayClient, run: int, seconds: float) -> float:
    """Returns rows per second: 16 environments step together, 16 rows of each a request."""
    streams = [f"actor-{run}/{i}" for i in range(ENVS)]
    steps = [_step(place) for place in range(EPISODE_ROWS)]
    with client.writer("train", streams, SIGNATURE, chunk_rows=CHUNK_ROWS) as writer:
        count = 0

        def one_round() -> int:
            nonlocal count
            for _ in range(CHUNK_ROWS):
                writer.append(steps[count % EPISODE_ROWS], priorities=PRIORITIES)
                count += 1
            return ENVS * CHUNK_ROWS

        _repeat(one_round, 0.3)
        return _repeat(one_round, seconds, writer.flush)


def sample(client: ReplayClient, seconds: float) -> float:
    """Returns items per second, in batches of 256."""
    with client.sampler("train", BATCH_SIZE, prefetch=4) as sampler:

        def one_batch() -> int:
            return len(sampler.next(timeout=30).item_keys)

        _repeat(one_batch, 0.3)
        return _repeat(one_batch, seconds)


def update(client: ReplayClient, seconds: float) -> float:
    """Returns priorities per second, 256 a call, one call after the other."""
    with client.sampler("train", BATCH_SIZE) as sampler:
        keys = sampler.next(timeout=30).item_keys

    def one_call() -> int:
        client.update_priorities("train", keys, PRIORITIES_256)
        return len(keys)

    _repeat(one_call, 0.3)
    return _repeat(one_call, seconds)


def serve(pipe: Connection) -> None:
    """Runs the server until a message comes; sends its address first."""

    async def run() -> None:
        server = ReplayServer()
        await server.start()
        server.open(RUN_ID, [Gate(Table(CONFIG, SIGNATURE, np.random.SeedSequence(1)))])
        pipe.send(server.address)
        await asyncio.to_thread(pipe.recv)
        await server.stop()

    asyncio.run(run())


def _repeat(
    action: Callable[[], int], seconds: float, finish: Callable[[], None] = lambda: None
) -> float:
    start = time.perf_counter()
    done = 0
    while time.perf_counter() - start < seconds:
        done += action()
    finish()
    return done / (time.perf_counter() - start)


def _step(place: int) -> dict[str, np.ndarray]:
    return {
        "observation": np.full((ENVS, 4), place, np.float32),
        "action": np.full(ENVS, place % 2),
        "policy_version": np.full(ENVS, 7),
        "reward": np.ones(ENVS, np.float32),
        "first": np.full(ENVS, place == 0),
        "terminated": np.full(ENVS, place == EPISODE_ROWS - 1),
        "truncated": np.zeros(ENVS, np.bool_),
    }


PRIORITIES = np.linspace(0.5, 1.5, ENVS)
PRIORITIES_256 = np.linspace(0.5, 1.5, BATCH_SIZE)

if __name__ == "__main__":
    main()
