"""What new weights cost an actor: they come from a parameter server, ten versions a second.

    python -m benchmarks.overlap --only weights --json

measures it. Server and publisher are processes of their own, as in a run; the actor's process
has the loop and the thread that receives. Where all of them share few cores,
`weight_refresh_slows_by` is what their work costs the loop as well, and
`weight_receive_cpu_ms` the actor's part of that work, for each version.
"""

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from statistics import median
from typing import Any, Protocol

from benchmarks.acting import process
from mycelia_actor.policies.policy import Policy
from mycelia_core.clients.params import ParamClient, WeightWatcher
from mycelia_core.clients.run import RunClient
from mycelia_core.config import RunConfig
from mycelia_core.weights import Weights

PUBLISH_SECONDS = 0.1
WAIT_SECONDS = 20.0


class Timed:
    """A policy whose time for taking in weights is counted."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self.act, self.greedy_value = policy.act, policy.greedy_value
        self.seconds, self.count = 0.0, 0

    def use(self, weights: Weights) -> None:
        """Takes in weights."""
        start = time.perf_counter()
        self._policy.use(weights)
        self.seconds += time.perf_counter() - start
        self.count += 1


class Side(Protocol):
    """An actor whose loop is run again and again."""

    policy: Timed
    weights: Weights
    config: RunConfig

    def run(self, seconds: float, newest: Callable[[], Weights | None]) -> float:
        """Returns steps per second with the weights that `newest` returns."""


def measure_refresh(side: Side, rounds: int, seconds: float) -> dict[str, Any]:
    """Returns what the loop gives to new weights, and how much slower it is with them."""
    shares, slower, rates = [], [], []
    with ExitStack() as stack:
        server = stack.enter_context(process("mycelia_param_server", "--bind", "127.0.0.1:0"))
        assert server.stdout
        address = server.stdout.readline().strip().removeprefix("ready address=")
        client = stack.enter_context(RunClient(address))
        run = client.create_run("refresh", side.config.model_dump_json())
        params = stack.enter_context(ParamClient(address, run.run_id))
        params.publish(side.weights.tensors, 0, expected_version=0)
        watcher = WeightWatcher(params)
        stack.callback(watcher.stop)
        for _ in range(rounds):
            # By turns, so that what else the machine does meets both alike.
            quiet = side.run(seconds, lambda: watcher.latest)
            with _publisher(address, run.run_id, watcher):
                before, count, start = side.policy.seconds, side.policy.count, time.perf_counter()
                busy = side.run(seconds, lambda: watcher.latest)
                elapsed = time.perf_counter() - start
            shares.append((side.policy.seconds - before) / elapsed)
            rates.append((side.policy.count - count) / elapsed)
            slower.append(1 - busy / quiet)
        with _publisher(address, run.run_id, watcher):
            cpu_seconds = _receive(watcher, max(seconds, 1.0))
    return {
        "weight_refreshes_per_second": round(median(rates), 2),
        "weight_refresh_share_of_time": round(median(shares), 5),
        "weight_refresh_slows_by": round(median(slower), 4),
        "weight_refresh_slows_by_min": round(min(slower), 4),
        "weight_refresh_slows_by_max": round(max(slower), 4),
        "weight_receive_cpu_ms": round(cpu_seconds * 1e3, 1),
    }


def _receive(watcher: WeightWatcher, seconds: float) -> float:
    """Returns the CPU seconds that this process takes to receive a version, and does no more."""
    count, start = watcher.received_count, time.process_time()
    time.sleep(seconds)
    return (time.process_time() - start) / max(1, watcher.received_count - count)


@contextmanager
def _publisher(address: str, run_id: str, watcher: WeightWatcher) -> Iterator[None]:
    """Has new versions published meanwhile, from another process."""
    command = [sys.executable, "-m", "benchmarks.refresh", address, run_id]
    count, end = watcher.received_count, time.monotonic() + WAIT_SECONDS
    with subprocess.Popen(command, stdin=subprocess.PIPE) as publisher:
        try:
            while watcher.received_count == count:
                assert time.monotonic() < end, "nothing was published"
                time.sleep(0.01)
            yield
        finally:
            publisher.kill()


def publish(address: str, run_id: str) -> None:
    """Publishes the newest weights again and again, as a learner does, until it is killed."""
    with ParamClient(address, run_id) as params:
        weights = params.get()
        assert weights
        version, due = weights.version, time.monotonic()
        while True:
            version = params.publish(weights.tensors, 0, expected_version=version)
            due += PUBLISH_SECONDS
            time.sleep(max(0.0, due - time.monotonic()))


if __name__ == "__main__":
    publish(*sys.argv[1:])
