"""Our side: a server in a process of its own, and measurements through the public client."""

import asyncio
import itertools
import multiprocessing
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.replay import workload
from benchmarks.replay.workload import (
    BATCH_SIZE,
    CHUNK_ROWS,
    ENVS,
    EPISODE_ROWS,
    KEY_BATCHES,
    UPDATE_SIZE,
)
from mycelia_core.clients.replay import ReplayClient
from mycelia_core.config import TableConfig
from mycelia_replay.gate import Gate
from mycelia_replay.server import ReplayServer
from mycelia_replay.table import Table

_writers = itertools.count()


def serve(pipe: Connection, configs: list[TableConfig]) -> None:
    """Runs a server until a message comes; sends its address first."""

    async def run() -> None:
        server = ReplayServer()
        await server.start()
        tables = [
            Table(config, workload.signature(config.name), np.random.SeedSequence(1))
            for config in configs
        ]
        server.open(workload.RUN_ID, [Gate(table) for table in tables])
        pipe.send(server.address)
        await asyncio.to_thread(pipe.recv)
        await server.stop()

    asyncio.run(run())


class OurSide:
    """Measures against a server with some of the tables small, frames and atari."""

    def __init__(self, frames: Path, configs: list[TableConfig] | None = None) -> None:
        """Starts the server; `frames` is a file of Atari frames."""
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        configs = configs or [workload.config(name) for name in ("small", "frames", "atari")]
        self._process = context.Process(target=serve, args=(theirs, configs), daemon=True)
        self._process.start()
        self.address = self._pipe.recv()
        self.client = ReplayClient(self.address, workload.RUN_ID)
        atari = workload.atari_frames(frames)
        self._steps: dict[str, Any] = {
            config.name: workload.observations(config.name, atari) for config in configs
        }

    def close(self) -> None:
        """Stops the server."""
        self.client.close()
        self._pipe.send("stop")
        self._process.join(timeout=10)

    def measure(self, name: str, seconds: float) -> float:
        """Returns a rate; fills the table before it samples."""
        action, table, *rest = name.split("_")
        if action == "insert":
            return self.insert(table, 1 if rest else ENVS, seconds)
        if rest == ["atari"]:
            table = "atari"
        self.fill(table, 4_000)
        if action == "sample":
            return self.sample(table, seconds, shared_memory=rest not in (["random"], ["atari"]))
        return self.update(table, seconds)

    def fill(self, table: str, rows: int) -> None:
        """Inserts until the table has so many rows."""
        while self.client.info([table])[0].row_count < rows:
            self.insert(table, ENVS, 1.0)

    def insert(self, table: str, env_count: int, seconds: float) -> float:
        """Returns rows per second; all environments step together."""
        streams = [f"writer-{next(_writers)}-{time.time_ns()}/{i}" for i in range(env_count)]
        observations = self._steps[table][:, :env_count]
        rest = [workload.step(observations[0], place) for place in range(EPISODE_ROWS)]
        priorities = np.ones(env_count)
        count = 0
        with self.client.writer(
            table, streams, workload.signature(table), chunk_rows=CHUNK_ROWS * (ENVS // env_count)
        ) as writer:

            def one_step() -> int:
                nonlocal count
                columns = rest[count % EPISODE_ROWS]
                columns["observation"] = observations[count % len(observations)]
                writer.append(columns, priorities=priorities)
                count += 1
                return env_count

            workload.repeat(one_step, 0.3)
            return workload.repeat(one_step, seconds, writer.flush)

    def sample(self, table: str, seconds: float, *, shared_memory: bool = True) -> float:
        """Returns items per second, in batches of 256."""
        with self.client.sampler(
            table, BATCH_SIZE, prefetch=4, shared_memory=shared_memory
        ) as sampler:

            def one_batch() -> int:
                return len(sampler.next(timeout=30).item_keys)

            workload.repeat(one_batch, 0.5)
            return workload.repeat(one_batch, seconds)

    def update(self, table: str, seconds: float) -> float:
        """Returns priorities per second, 512 at a time, in the background."""
        with self.client.sampler(table, UPDATE_SIZE, prefetch=1) as sampler:
            keys = itertools.cycle([sampler.next(timeout=30).item_keys for _ in range(KEY_BATCHES)])
        priorities = np.linspace(0.5, 1.5, UPDATE_SIZE)
        with self.client.updater(table) as updater:

            def one_call() -> int:
                updater.submit(next(keys), priorities)
                return UPDATE_SIZE

            workload.repeat(one_call, 0.3)
            return workload.repeat(one_call, seconds, lambda: updater.flush(30))

    def sample_latencies(self, table: str, batch_size: int, count: int) -> list[float]:
        """Returns the seconds that each of some batches took, one at a time."""
        seconds = []
        with self.client.sampler(table, batch_size, prefetch=1) as sampler:
            sampler.next(timeout=30)
            sampler.next(timeout=30)
            for _ in range(count):
                start = time.perf_counter()
                sampler.next(timeout=30)
                seconds.append(time.perf_counter() - start)
        return seconds
