"""How fast the parameter server hands out weights and applies gradients, over loopback.

    python -m benchmarks.params [--seconds 3] [--readers 1 8 32] [--shards 1 2] [--json]

The server runs in a process of its own, as do the readers, eight threads to a process. Prints
whole pulls per second of a model of 10 million float32 weights from one server and split over
two (JSON: `pulls` by number of shards, then of readers), gradients applied per second by
shared RMSProp for three sizes of model (`gradients`, and `split_gradients` over two servers), and
where the time goes: in the first server's optimizer itself, in the rest of its updates (averaging,
copying, encoding), and in everything else (transport, checks, waiting). With `--json` the last
line is one object.
"""

import argparse
import contextlib
import itertools
import json
import multiprocessing
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from multiprocessing.queues import Queue

import numpy as np

from mycelia_core.clients.gradients import GradientClient
from mycelia_core.clients.params import ParamClient
from mycelia_core.clients.run import RunClient

LAYERS = 10
PULLED_WEIGHTS = 10_000_000
THREADS_PER_PROCESS = 8
PUSHERS = 2
SIZES = {"10K": 10_000, "1M": 1_000_000, "10M": 10_000_000}


def main() -> None:
    """Runs the benchmark."""
    parser = argparse.ArgumentParser(prog="benchmarks.params")
    parser.add_argument("--seconds", type=float, default=3.0, help="of each measurement")
    parser.add_argument("--readers", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--shards", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--json", action="store_true", help="print JSON as the last line")
    arguments = parser.parse_args()
    pulls: dict[str, dict[str, dict[str, float]]] = {}
    gradients: dict[int, dict[str, dict[str, float]]] = {}
    for shards, readers in itertools.product(arguments.shards, arguments.readers):
        figures = measure_pulls(readers, arguments.seconds, shards)
        pulls.setdefault(str(shards), {})[str(readers)] = figures
        print(
            f"{shards} shards, {readers:>3} readers: {figures['pulls_per_second']:8.2f} pulls/s "
            f"{figures['megabytes_per_second']:8.1f} MB/s"
        )
    for shards, name in itertools.product((1, 2), SIZES):
        figures = measure_gradients(SIZES[name], arguments.seconds, shards)
        gradients.setdefault(shards, {})[name] = figures
        print(
            f"{shards} shards, {name:>4} weights: "
            f"{figures['applied_per_second']:8.1f} gradients/s, of the time "
            f"{figures['optimizer_share']:.0%} optimizer, {figures['update_share']:.0%} rest of "
            f"updates, {figures['other_share']:.0%} transport, checks and waiting"
        )
    if arguments.json:
        print(
            json.dumps({"pulls": pulls, "gradients": gradients[1], "split_gradients": gradients[2]})
        )


def measure_pulls(readers: int, seconds: float, shards: int) -> dict[str, float]:
    """Returns whole pulls and megabytes per second of all readers together."""
    with serve(PULLED_WEIGHTS, "replay", shards) as (address, run_id):
        context = multiprocessing.get_context("spawn")
        rates: Queue[float] = context.Queue()
        begin = context.Event()
        processes = [
            context.Process(
                target=read,
                args=(address, run_id, count, begin, seconds, rates),
                daemon=True,
            )
            for count in in_groups(readers)
        ]
        for process in processes:
            process.start()
        time.sleep(1.0 + 0.5 * len(processes))
        begin.set()
        rate = sum(rates.get(timeout=seconds + 120) for _ in range(readers))
        for process in processes:
            process.join(10)
    return {
        "pulls_per_second": round(rate, 3),
        "megabytes_per_second": round(rate * PULLED_WEIGHTS * 4 / 1e6, 1),
    }


def in_groups(readers: int) -> list[int]:
    """Returns how many readers each process has."""
    full, rest = divmod(readers, THREADS_PER_PROCESS)
    return [THREADS_PER_PROCESS] * full + ([rest] if rest else [])


def read(
    address: str,
    run_id: str,
    count: int,
    begin: threading.Event,
    seconds: float,
    rates: "Queue[float]",
) -> None:
    """Pulls weights in `count` threads and reports how many whole pulls a second each makes."""

    def pull() -> None:
        with ParamClient(address, run_id) as client:
            begin.wait()
            start, now, pulls = time.monotonic(), 0.0, 0
            while now < seconds:
                client.get(timeout=120)
                now, pulls = time.monotonic() - start, pulls + 1
            # Until its last pull was whole, so that none is counted in part.
            rates.put(pulls / now)

    in_threads([pull] * count)


def measure_gradients(size: int, seconds: float, shards: int) -> dict[str, float]:
    """Returns gradients applied per second, with weights in each answer, and shares of time."""
    with (
        serve(size, shards=shards) as (address, run_id),
        GradientClient(address, run_id) as watch,
    ):
        in_threads([pusher(address, run_id, size, f"warm-up {n}", 0.5) for n in range(PUSHERS)])
        before, start = watch.info(), time.monotonic()
        in_threads([pusher(address, run_id, size, str(n), seconds) for n in range(PUSHERS)])
        after, elapsed = watch.info(), time.monotonic() - start
    optimizer = (after.optimizer_seconds - before.optimizer_seconds) / elapsed
    update = (after.other_seconds - before.other_seconds) / elapsed
    return {
        "applied_per_second": round((after.update_count - before.update_count) / elapsed, 2),
        "optimizer_share": round(optimizer, 4),
        "update_share": round(update, 4),
        "other_share": round(1 - optimizer - update, 4),
    }


def pusher(
    address: str, run_id: str, size: int, worker_id: str, seconds: float
) -> Callable[[], None]:
    """Returns a worker that does nothing but push, one gradient after the other."""

    def push() -> None:
        gradients = {name: array + 1e-3 for name, array in tensors(size).items()}
        end, sequence = time.monotonic() + seconds, 0
        with GradientClient(address, run_id) as client, ParamClient(address, run_id) as params:
            weights = params.get()
            while weights and time.monotonic() < end:
                sequence += 1
                result = client.push(
                    gradients,
                    version=weights.version,
                    placement=weights.placement,
                    worker_id=worker_id,
                    sequence=sequence,
                    sample_count=1,
                )
                # With several servers, one may have gone on to newer weights meanwhile.
                weights = result.weights or params.get()

    return push


def in_threads(work: list[Callable[[], None]]) -> None:
    """Runs all at once and waits for all."""
    threads = [threading.Thread(target=task) for task in work]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def tensors(size: int) -> dict[str, np.ndarray]:
    """Returns weights of `size` elements in all, in layers of equal size."""
    return {f"layer.{n}.weight": np.zeros(size // LAYERS, np.float32) for n in range(LAYERS)}


@contextlib.contextmanager
def serve(
    size: int, topology: str = "async-gradients", shards: int = 1
) -> Iterator[tuple[str, str]]:
    """Starts servers with a run and its first weights; yields the first's address, the run's id."""
    config = {
        "name": "benchmark",
        "env": {"id": "CartPole-v1"},
        "algorithm": {"name": "dqn"},
        "topology": topology,
        "param_server": {"shards": shards},
    }
    with contextlib.ExitStack() as stack:
        address = stack.enter_context(server_process())
        with RunClient(address) as client:
            run_id = client.create_run("benchmark", json.dumps(config)).run_id
        for _ in range(1, shards):
            stack.enter_context(server_process("--join", address))
        with ParamClient(address, run_id) as params:
            params.publish(tensors(size), learner_step=0, expected_version=0)
        yield address, run_id


@contextlib.contextmanager
def server_process(*arguments: str) -> Iterator[str]:
    """Starts a parameter server and yields its address."""
    process = subprocess.Popen(
        [sys.executable, "-m", "mycelia_param_server", "--log-level", "error", *arguments],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout
        yield process.stdout.readline().strip().removeprefix("ready address=")
    finally:
        process.terminate()
        process.wait(10)


if __name__ == "__main__":
    main()
