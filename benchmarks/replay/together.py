"""One writer, and one sampler that updates what it samples, at once, against each alone."""

import multiprocessing
from multiprocessing.connection import Connection

import numpy as np

from benchmarks.replay import workload
from benchmarks.replay.ours import OurSide
from benchmarks.replay.workload import BATCH_SIZE
from mycelia_core.clients.replay import ReplayClient, Sampler


def together(side: OurSide, seconds: float) -> dict[str, float]:
    """Returns how fast each is beside the other, as a fraction of its rate alone, and the sum.

    Each alone has all cores, so with perfect sharing the fractions would sum up to 1.
    """
    side.fill("small", 4_000)
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_learn, args=(theirs, side.address, seconds), daemon=True)
    process.start()
    alone = {"insert": side.insert("small", workload.ENVS, seconds)}
    alone["sample_and_update"] = _ask(ours)
    ours.send("again")
    rates = {"insert": side.insert("small", workload.ENVS, seconds)}
    rates["sample_and_update"] = ours.recv()
    ours.send(None)
    process.join(timeout=10)
    fractions = {name: rates[name] / alone[name] for name in alone}
    return {**fractions, "sum": sum(fractions.values())}


def _ask(pipe: Connection) -> float:
    pipe.send("again")
    rate: float = pipe.recv()
    return rate


def _learn(pipe: Connection, address: str, seconds: float) -> None:
    """Samples and updates for some seconds whenever it is asked."""
    priorities = np.linspace(0.5, 1.5, BATCH_SIZE)
    with ReplayClient(address, workload.RUN_ID) as client, client.updater("small") as updater:
        while pipe.recv():
            with client.sampler("small", BATCH_SIZE, prefetch=4) as sampler:

                def one_batch(sampler: Sampler = sampler) -> int:
                    updater.submit(sampler.next(timeout=30).item_keys, priorities)
                    return BATCH_SIZE

                workload.repeat(one_batch, 0.3)
                pipe.send(workload.repeat(one_batch, seconds, lambda: updater.flush(30)))
