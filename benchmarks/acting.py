"""How fast one actor acts in CartPole with the documented MLP, in environment steps per second.

    python -m benchmarks.acting [--seconds 3] [--envs 8] [--runs 3] [--json]

`acting` is the actor's own loop (environments, policy, initial priorities) with
nowhere to send rows; `inserting` is an actor process that sends every row to a
replay process over loopback, weights published ten times a second.
"""

import argparse
import json
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mycelia.run.v1 import run_pb2
from mycelia_actor.actor import make_priorities
from mycelia_actor.environments.backend import make_environments
from mycelia_actor.environments.spaces import Columns, signature_of
from mycelia_actor.environments.vector import StepResult
from mycelia_actor.loop import ActingLoop
from mycelia_actor.policies.action_values import MlpValues
from mycelia_actor.policies.epsilon import actor_epsilons
from mycelia_actor.policies.epsilon_greedy import EpsilonGreedy
from mycelia_actor.policies.policy import ActionChoice
from mycelia_actor.recorder import Recorder
from mycelia_core.clients.params import ParamClient
from mycelia_core.clients.run import RunClient
from mycelia_core.config import ActorConfig, EnvConfig, ReplayConfig, RunConfig, WindowConfig
from mycelia_core.weights import Weights

HIDDEN = 128
PUBLISH_SECONDS = 0.1
WAIT_SECONDS = 60.0


class Nowhere:
    """A sink that drops rows."""

    def append(self, columns: Columns, **_: Any) -> None:
        """Drops them."""


class Timer:
    """Counts steps, and stops the loop when the time is up."""

    def __init__(self, seconds: float, stop: threading.Event) -> None:
        self.env_steps = 0
        self._end = time.monotonic() + seconds
        self._stop = stop

    def add(self, choice: ActionChoice, result: StepResult) -> None:
        """Counts one step."""
        self.env_steps += result.step_count
        if time.monotonic() > self._end:
            self._stop.set()


def main() -> None:
    """Runs the benchmark."""
    parser = argparse.ArgumentParser(prog="benchmarks.acting")
    parser.add_argument("--seconds", type=float, default=3.0, help="of each run")
    parser.add_argument("--envs", type=int, default=8, help="environments of the actor")
    parser.add_argument("--runs", type=int, default=3, help="the median of which is taken")
    parser.add_argument("--json", action="store_true", help="print JSON as the last line")
    arguments = parser.parse_args()
    config = make_config(arguments.envs)
    measures = {"acting": acting, "inserting": inserting}
    rates = {
        name: [measure(config, arguments.seconds) for _ in range(arguments.runs)]
        for name, measure in measures.items()
    }
    medians = {name: round(statistics.median(values)) for name, values in rates.items()}
    for name, values in rates.items():
        spread = f"{min(values):,.0f} to {max(values):,.0f}"
        print(f"{name:>10}: {medians[name]:>9,} env steps/s  ({spread})")
    if arguments.json:
        keys = {name: f"{name}_env_steps_per_second" for name in medians}
        print(json.dumps({keys[name]: rate for name, rate in medians.items()}))


def make_config(envs: int) -> RunConfig:
    """Returns the config of a run with one actor and a table that never makes it wait."""
    return RunConfig(
        name="acting",
        env=EnvConfig(id="CartPole-v1"),
        actor=ActorConfig(count=1, envs_per_actor=envs),
        replay=ReplayConfig(capacity_rows=100_000, window=WindowConfig(bootstrap_rows=3)),
        algorithm={"name": "dqn", "gamma": 0.99, "n_step": 3},
    )


def make_tensors() -> dict[str, NDArray[np.float32]]:
    """Returns weights of a dueling MLP with two hidden layers."""
    generator = np.random.default_rng(0)

    def draw(*shape: int) -> NDArray[np.float32]:
        return (0.1 * generator.standard_normal(shape)).astype(np.float32)

    sizes = {"trunk.0": (HIDDEN, 4), "trunk.1": (HIDDEN, HIDDEN)}
    sizes |= {"value": (1, HIDDEN), "advantage": (2, HIDDEN)}
    tensors = {f"{name}.weight": draw(*shape) for name, shape in sizes.items()}
    return tensors | {f"{name}.bias": draw(shape[0]) for name, shape in sizes.items()}


def acting(config: RunConfig, seconds: float) -> float:
    """Returns the steps per second of the loop alone."""
    count = config.actor.envs_per_actor
    environments = make_environments(config.env, count)
    signature = signature_of(environments.observation, environments.action)
    epsilon = actor_epsilons(config.actor, 0)
    policy = EpsilonGreedy(MlpValues(signature), epsilon, np.random.default_rng(1))
    recorder = Recorder(Nowhere(), policy, environments.action, make_priorities(config, count))
    weights, stop = Weights(1, 0, make_tensors()), threading.Event()
    timer = Timer(seconds, stop)
    ActingLoop(environments, policy, recorder, lambda: weights, timer).run(range(count), stop)
    environments.close()
    return timer.env_steps / seconds


def inserting(config: RunConfig, seconds: float) -> float:
    """Returns the steps per second of an actor process whose rows reach a replay process."""
    with ExitStack() as stack:
        server = stack.enter_context(process("mycelia_param_server", "--bind", "127.0.0.1:0"))
        assert server.stdout
        address = server.stdout.readline().strip().removeprefix("ready address=")
        client = stack.enter_context(RunClient(address))
        run = client.create_run(config.name, config.model_dump_json())
        stack.enter_context(process("mycelia_replay", "--join", address))
        stack.enter_context(process("mycelia_actor", "--join", address))
        params = stack.enter_context(ParamClient(address, run.run_id))
        client.wait_for_member(run_pb2.ROLE_REPLAY, WAIT_SECONDS)
        version = publish_for(params, 1.0, 0)
        before, start = env_steps(client), time.monotonic()
        publish_for(params, seconds, version)
        return (env_steps(client) - before) / (time.monotonic() - start)


def publish_for(params: ParamClient, seconds: float, version: int) -> int:
    """Publishes at the pace of a learner; returns the newest version."""
    end, tensors = time.monotonic() + seconds, make_tensors()
    while time.monotonic() < end:
        version = params.publish(tensors, version, version)
        time.sleep(PUBLISH_SECONDS)
    return version


def env_steps(client: RunClient) -> int:
    """Returns the run's environment steps, as of the actor's last heartbeat."""
    return client.get_run().progress.env_steps


@contextmanager
def process(module: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A service as a process of its own, stopped at the end."""
    command = [sys.executable, "-m", module, *arguments, "--exit-with-parent"]
    started = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    try:
        yield started
    finally:
        started.terminate()
        started.communicate(timeout=10)


if __name__ == "__main__":
    main()
