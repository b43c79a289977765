"""One writer, one sampler and its updates at once, against each alone."""

import multiprocessing
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np

from benchmarks.replay import workload
from benchmarks.replay.ours import OurSide
from benchmarks.replay.workload import BATCH_SIZE
from mycelia_core.clients.replay import ReplayClient


def together(side: OurSide, frames: Path, seconds: float) -> dict[str, float]:
    """Returns how fast each is beside the others, as a fraction of its rate alone, and the sum.

    Each alone has all cores, so with perfect sharing the fractions would sum up to 1.
    """
    side.fill("small", 4_000)
    alone = {
        "insert": side.insert("small", workload.ENVS, seconds),
        "sample": side.sample("small", seconds),
        "update": side.update("small", seconds),
    }
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(
        target=_sample_and_update, args=(theirs, side.address, seconds), daemon=True
    )
    process.start()
    ours.recv()
    rates = {"insert": side.insert("small", workload.ENVS, seconds)}
    rates |= ours.recv()
    process.join(timeout=10)
    fractions = {name: rates[name] / alone[name] for name in alone}
    return {**fractions, "sum": sum(fractions.values())}


def _sample_and_update(pipe: Connection, address: str, seconds: float) -> None:
    priorities = np.linspace(0.5, 1.5, BATCH_SIZE)
    with (
        ReplayClient(address, workload.RUN_ID) as client,
        client.sampler("small", BATCH_SIZE, prefetch=4) as sampler,
        client.updater("small") as updater,
    ):

        def one_batch() -> int:
            updater.submit(sampler.next(timeout=30).item_keys, priorities)
            return BATCH_SIZE

        pipe.send("ready")
        workload.repeat(one_batch, 0.3)
        rate = workload.repeat(one_batch, seconds, lambda: updater.flush(30))
        pipe.send({"sample": rate, "update": rate})
