"""When central inference wins: actors with a network each, and actors that ask one service.

    python -m benchmarks.inference [--seconds 3] [--cases 1x16 1x64 4x16 4x64 8x2]
        [--networks mlp cnn] [--rounds 3] [--device cpu] [--threads 1] [--json]

A case AxN is A actor processes with N environments each. Both ways run as in a run: a
parameter server to which new weights are published ten times a second, and either actors
that watch it, or an inference service that does. `mlp` is CartPole with two layers of 256;
`cnn` is DQN's network of 1.7 million weights on 84 x 84 frames in stacks of four, from an
environment that costs nothing, so that only acting is measured. Nothing is sent to replay.

A step is one env step. `act_ms` is what an actor waits for the actions of all its
environments; centrally that is made up of `batch_wait_ms`, `compute_ms` and the rest, the
`wire_ms`: encoding, gRPC, and waiting for a processor. With --device cuda the service uses
the GPU of this machine, and actors stay on its processors.
"""

import argparse
import itertools
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, TextIO

import numpy as np
from numpy.typing import NDArray

from benchmarks.acting import process
from mycelia.run.v1 import run_pb2
from mycelia_actor.environments.backend import make_environments
from mycelia_actor.environments.spaces import Columns, action_columns, observation_columns
from mycelia_actor.environments.spaces import signature_of as make_signature
from mycelia_actor.policies.action_values import ActionValues, make_action_values
from mycelia_actor.policies.epsilon_greedy import EpsilonGreedy
from mycelia_actor.policies.remote_values import RemoteValues
from mycelia_core.clients.inference import inference_locator
from mycelia_core.clients.params import ParamClient, WeightWatcher
from mycelia_core.clients.run import RunClient
from mycelia_core.config import ActorConfig, EnvConfig, InferenceConfig, NetworkConfig, RunConfig
from mycelia_core.specs import FIRST, Signature

PUBLISH_SECONDS = 0.1
WAIT_SECONDS = 120.0
WARM_SECONDS = 0.5
FRAME, ACTIONS, STACK = (84, 84), 6, 4


class Frames:
    """Environments that show frames made beforehand, and cost nothing."""

    def __init__(self, count: int) -> None:
        self._frames = np.random.default_rng(0).integers(0, 256, (8, count, *FRAME), np.uint8)
        self._first = np.zeros(count, np.bool_)
        self._turn = 0

    def step(self, _: Columns) -> Columns:
        """Returns what they show next."""
        self._turn = (self._turn + 1) % len(self._frames)
        return {"observation": self._frames[self._turn], FIRST: self._first}

    def close(self) -> None:
        """Has nothing to close."""


class CartPoles:
    """CartPole, as an actor steps it."""

    def __init__(self, count: int) -> None:
        self._environments = make_environments(EnvConfig(id="CartPole-v1"), count)
        self._environments.reset(range(count))

    def step(self, action: Columns) -> Columns:
        """Returns what they show next."""
        seen = self._environments.step(action).observation
        return {**seen.columns, FIRST: seen.first}

    def close(self) -> None:
        """Closes them."""
        self._environments.close()


def main() -> None:
    """Runs the benchmark, or one actor of it."""
    parser = argparse.ArgumentParser(prog="benchmarks.inference")
    parser.add_argument("--seconds", type=float, default=3.0, help="of each case")
    parser.add_argument("--cases", nargs="+", default=["1x16", "1x64", "4x16", "4x64", "8x2"])
    parser.add_argument("--networks", nargs="+", default=["mlp", "cnn"], choices=["mlp", "cnn"])
    parser.add_argument("--rounds", type=int, default=3, help="the median of which is compared")
    parser.add_argument("--device", default="cpu", help="of the service: cpu, cuda")
    parser.add_argument("--threads", type=int, default=1, help="of the service's torch")
    parser.add_argument("--json", action="store_true", help="print JSON as the last line")
    parser.add_argument("--actor", nargs=4, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.actor:
        act(*arguments.actor, seconds=arguments.seconds)
        return
    cases = [tuple(map(int, case.split("x"))) for case in arguments.cases]
    rows = []
    for network in arguments.networks:
        config = make_config(network, arguments.device, arguments.threads)
        rows += measure(network, config, cases, arguments.rounds, arguments.seconds)
    compared = compare(rows)
    for row in compared:
        print(f"{row['network']} {row['case']}: central over local {row['central_over_local']:.2f}")
    if arguments.json:
        print(json.dumps({"device": arguments.device, "rows": rows, "compared": compared}))


def make_config(network: str, device: str, threads: int) -> RunConfig:
    """Returns the config of a run with that network."""
    images = network == "cnn"
    return RunConfig(
        name=f"inference-{network}",
        env=EnvConfig(id="CartPole-v1"),
        actor=ActorConfig(inference="central"),
        inference=InferenceConfig(device=device, torch_threads=threads),
        network=NetworkConfig(hidden_sizes=(512,) if images else (256, 256), convolutions=images),
        algorithm={"name": "dqn", "frame_stack": STACK if images else 1, "dueling": False},
    )


def make_run_signature(network: str) -> Signature:
    """Returns what rows of such a run are made of."""
    from gymnasium import spaces

    if network == "cnn":
        seen: Any = spaces.Box(0, 255, FRAME, np.uint8)
        return make_signature(observation_columns(seen), action_columns(spaces.Discrete(ACTIONS)))
    environments = make_environments(EnvConfig(id="CartPole-v1"), 1)
    environments.close()
    return make_signature(environments.observation, environments.action)


def make_tensors(network: str) -> dict[str, NDArray[np.float32]]:
    """Returns weights of the learner's network."""
    from mycelia_algorithms.networks.factory import build_q_network
    from mycelia_algorithms.networks.spec import QNetworkSpec

    images = network == "cnn"
    spec = QNetworkSpec(
        observation_shape=(STACK, *FRAME) if images else (4,),
        action_count=ACTIONS if images else 2,
        hidden_sizes=(512,) if images else (256, 256),
        dueling=False,
        convolutions=images,
    )
    state = build_q_network(spec, seed=1).state_dict()
    return {name: tensor.numpy() for name, tensor in state.items()}


def measure(
    network: str, config: RunConfig, cases: list[tuple[int, ...]], rounds: int, seconds: float
) -> list[dict[str, Any]]:
    """Returns a row for each case, round and way."""
    rows = []
    with ExitStack() as stack:
        server = stack.enter_context(process("mycelia_param_server", "--bind", "127.0.0.1:0"))
        assert server.stdout
        address = server.stdout.readline().strip().removeprefix("ready address=")
        client = stack.enter_context(RunClient(address))
        run = client.create_run(config.name, config.model_dump_json())
        # Whoever brings the signature of the run need not act.
        signature = make_run_signature(network)
        stack.enter_context(client.join(run_pb2.ROLE_ACTOR, signature=signature))
        stack.enter_context(publishing(address, run.run_id, make_tensors(network)))
        for (actors, envs), _ in itertools.product(cases, range(rounds)):
            # By turns, so that what else the machine does meets both ways alike; and the
            # service is not there while it is not asked, for it would take the weights.
            rows.append(measure_case(network, "local", address, actors, envs, seconds))
            print(line(rows[-1]), flush=True)
            with process("mycelia_actor.inference", "--join", address):
                wait_until_it_infers(client)
                rows.append(measure_case(network, "central", address, actors, envs, seconds))
            print(line(rows[-1]), flush=True)
    return rows


def measure_case(
    network: str, mode: str, address: str, actors: int, envs: int, seconds: float
) -> dict[str, Any]:
    """Returns the figures of actors that act at the same time."""
    command = [sys.executable, "-m", "benchmarks.inference", "--seconds", str(seconds)]
    command += ["--actor", network, mode, address, str(envs)]
    # As the launcher has it: more threads than this slow small networks down.
    environ = os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    started = [subprocess.Popen(command, env=environ, text=True, **pipes) for _ in range(actors)]
    try:
        for one in started:
            assert one.stdout
            assert one.stdout.readline() == "ready\n", "an actor could not start"
        for one in started:
            tell(one.stdin)
        found = [json.loads(one.communicate(timeout=WAIT_SECONDS)[0]) for one in started]
    finally:
        for one in started:
            one.kill()
            one.wait()
    return summarise(network, mode, actors, envs, found)


def tell(pipe: TextIO | None) -> None:
    """Lets an actor begin."""
    assert pipe
    pipe.write("go\n")
    pipe.flush()


def summarise(
    network: str, mode: str, actors: int, envs: int, found: list[dict[str, Any]]
) -> dict[str, Any]:
    """Returns one row of what several actors have measured."""

    def mean(name: str) -> float:
        return float(np.mean([one[name] for one in found]))

    latencies = np.concatenate([one["act_ms"] for one in found])
    row = {
        "network": network,
        "mode": mode,
        "actors": actors,
        "envs": envs,
        "steps_per_second": round(sum(one["steps_per_second"] for one in found)),
        "act_ms_p50": round(float(np.percentile(latencies, 50)), 3),
        "act_ms_p95": round(float(np.percentile(latencies, 95)), 3),
        "refresh_share": round(mean("refresh_share"), 4),
        "actor_resident_mib": round(mean("resident_mib")),
    }
    if mode == "local":
        return row | {"batch_rows_mean": envs}
    names = ("batch_rows_mean", "batch_wait_ms", "compute_ms", "wire_ms", "wire_bytes_per_step")
    return row | {name: round(mean(name), 2) for name in names}


def line(row: dict[str, Any]) -> str:
    """Returns a row for people."""
    text = (
        f"{row['network']} {row['actors']}x{row['envs']:<3} {row['mode']:>7}: "
        f"{row['steps_per_second']:>8,} steps/s, acts in {row['act_ms_p50']:.2f} ms "
        f"(95 %: {row['act_ms_p95']:.2f}), batches of {row['batch_rows_mean']:.0f}, "
        f"{row['actor_resident_mib']} MiB an actor"
    )
    if row["mode"] == "local":
        return f"{text}, {row['refresh_share']:.1%} of the time for new weights"
    return (
        f"{text}; wait {row['batch_wait_ms']:.2f} + compute {row['compute_ms']:.2f} + wire "
        f"{row['wire_ms']:.2f} ms, {row['wire_bytes_per_step']:,.0f} bytes a step"
    )


def compare(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Returns how much faster the central way is in each case, in the median of its rounds."""
    rates: dict[tuple[str, int, int], dict[str, list[int]]] = {}
    for row in rows:
        case = rates.setdefault((row["network"], row["actors"], row["envs"]), {})
        case.setdefault(row["mode"], []).append(row["steps_per_second"])
    compared = []
    for (network, actors, envs), case in rates.items():
        ratios = np.array(case["central"]) / np.array(case["local"])
        compared.append(
            {
                "network": network,
                "case": f"{actors}x{envs}",
                "local_steps_per_second": float(np.median(case["local"])),
                "central_steps_per_second": float(np.median(case["central"])),
                "central_over_local": round(float(np.median(ratios)), 3),
            }
        )
    return compared


@contextmanager
def publishing(
    address: str, run_id: str, tensors: dict[str, NDArray[np.float32]]
) -> Iterator[None]:
    """Publishes at the pace of a learner, from a thread."""
    stop = threading.Event()
    with ParamClient(address, run_id) as params:
        version = params.publish(tensors, 0, expected_version=0)

        def publish() -> None:
            nonlocal version
            while not stop.wait(PUBLISH_SECONDS):
                version = params.publish(tensors, version, expected_version=version)

        thread = threading.Thread(target=publish, daemon=True)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join(10)


def wait_until_it_infers(client: RunClient) -> None:
    """Waits for the service to say that it serves."""
    deadline = time.monotonic() + WAIT_SECONDS
    while time.monotonic() < deadline:
        members = client.get_run().members
        if any(m.role == run_pb2.ROLE_INFERENCE and m.alive and m.counters for m in members):
            return
        time.sleep(0.1)
    raise TimeoutError("the inference service did not come")


def act(network: str, mode: str, address: str, count: str, *, seconds: float) -> None:
    """Acts in N environments as one of the actors, and prints what it measured."""
    envs, stop = int(count), threading.Event()
    environments: Any = Frames(envs) if network == "cnn" else CartPoles(envs)
    with ExitStack() as stack:
        stack.callback(environments.close)
        client = stack.enter_context(RunClient(address))
        run = client.get_run().run
        config = RunConfig.model_validate_json(run.config_json)
        signature = Signature.from_proto(run.signature)
        watcher: WeightWatcher | None = None
        if mode == "central":
            values: ActionValues = RemoteValues(
                signature,
                envs,
                run_id=run.run_id,
                locate=inference_locator(client, run.run_id, 0),
                timeout_seconds=10.0,
                stop=stop,
            )
        else:
            values = make_action_values(signature, config, envs)
            params = stack.enter_context(ParamClient(address, run.run_id))
            watcher = WeightWatcher(params)
            stack.callback(watcher.stop)
        policy = EpsilonGreedy(values, np.full(envs, 0.1), np.random.default_rng(1))
        actor = Actor(environments, policy, values, watcher, envs)
        actor.act_for(WARM_SECONDS)
        print("ready", flush=True)
        sys.stdin.readline()
        print(json.dumps(actor.act_for(seconds)), flush=True)


def resident_mib() -> float:
    """Returns the most memory that this process has had."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM"))


class Actor:
    """The part of an actor's loop that is measured."""

    def __init__(
        self,
        environments: Any,
        policy: EpsilonGreedy,
        values: ActionValues,
        watcher: WeightWatcher | None,
        count: int,
    ) -> None:
        self._environments, self._policy = environments, policy
        self._values, self._watcher = values, watcher
        self._version = 0
        self._action: Columns = {"action": np.zeros(count, np.int64)}

    def act_for(self, seconds: float) -> dict[str, Any]:
        """Acts for a while and returns the figures."""
        before = self._figures()
        latencies, refresh_seconds, steps = [], 0.0, 0
        start = time.perf_counter()
        while (now := time.perf_counter()) < start + seconds:
            self._refresh()
            refreshed = time.perf_counter()
            seen = self._environments.step(self._action)
            stepped = time.perf_counter()
            self._action = self._policy.act(seen).action
            latencies.append((time.perf_counter() - stepped) * 1e3)
            refresh_seconds += refreshed - now
            steps += len(self._action["action"])
        elapsed = time.perf_counter() - start
        return {
            "steps_per_second": steps / elapsed,
            "act_ms": latencies,
            "refresh_share": refresh_seconds / elapsed,
            "resident_mib": resident_mib(),
            **self._split(before, steps),
        }

    def _refresh(self) -> None:
        weights = self._watcher.latest if self._watcher else None
        if weights and weights.version != self._version:
            self._policy.use(weights)
            self._version = weights.version

    def _figures(self) -> NDArray[np.float64]:
        if not isinstance(self._values, RemoteValues):
            return np.zeros(6)
        f = self._values.figures
        return np.array(
            [
                f.requests,
                f.total_seconds,
                f.batch_wait_seconds,
                f.compute_seconds,
                f.sent_bytes + f.received_bytes,
                f.batch_rows,
            ]
        )

    def _split(self, before: NDArray[np.float64], steps: int) -> dict[str, float]:
        requests, total, wait, compute, wire_bytes, rows = (self._figures() - before).tolist()
        if not requests:
            return {}
        return {
            "batch_rows_mean": rows / requests,
            "batch_wait_ms": wait / requests * 1e3,
            "compute_ms": compute / requests * 1e3,
            "wire_ms": (total - wait - compute) / requests * 1e3,
            "wire_bytes_per_step": wire_bytes / steps,
        }


if __name__ == "__main__":
    main()
