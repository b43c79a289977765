"""Real parameter servers for tests: one in a thread of the test, one in a process of its own."""

import asyncio
import contextlib
import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from mycelia_core.clients.gradients import GradientClient
from mycelia_core.clients.params import ParamClient
from mycelia_core.clients.run import RunClient
from mycelia_core.rpc.errors import UnavailableError
from mycelia_param_server.server import ParamServer
from mycelia_param_server.shard import WeightShard

CONFIG_JSON = json.dumps(
    {"name": "test", "env": {"id": "CartPole-v1"}, "algorithm": {"name": "dqn"}}
)


class ParamServerThread:
    """A parameter server on an event loop in a thread of its own."""

    def __init__(self, bind: str = "127.0.0.1:0", **settings: float) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._server = self._run(self._start(bind, settings))
        self.address = self._server.address
        self._stopped = False

    def stop(self, grace_seconds: float = 1.0) -> None:
        if not self._stopped:
            self._stopped = True
            self._run(self._server.stop(grace_seconds))
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(5)
            self._loop.close()

    async def _start(self, bind: str, settings: dict[str, float]) -> ParamServer:
        server = ParamServer(bind, **settings)
        await server.start()
        return server

    def _run(self, work):
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(10)


class ShardThread:
    """A further parameter server of a run, on an event loop in a thread of its own."""

    def __init__(self, registry: str) -> None:
        self._stopping = threading.Event()
        started = threading.Event()
        self._thread = threading.Thread(
            target=lambda: asyncio.run(self._serve(registry, started)), daemon=True
        )
        self._thread.start()
        assert started.wait(10)

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join(10)

    async def _serve(self, registry: str, started: threading.Event) -> None:
        shard = WeightShard("127.0.0.1:0", max_weight_bytes=2**30)
        await shard.start()
        started.set()
        with contextlib.suppress(UnavailableError):  # the registry may be the first to go
            await shard.serve_run(registry, "", self._stopping)
        await shard.stop()


class ParamServerProcess:
    """A parameter server as it really runs: `python -m mycelia_param_server`."""

    def __init__(self, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "mycelia_param_server", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.ready_line = self.process.stdout.readline()
        self.address = self.ready_line.strip().removeprefix("ready address=")

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate(timeout=10)


@pytest.fixture
def start_param_server() -> Iterator[Callable[..., ParamServerThread]]:
    """Starts any number of parameter servers, and stops them after the test."""
    servers = []

    def start(bind: str = "127.0.0.1:0", **settings: float) -> ParamServerThread:
        servers.append(ParamServerThread(bind, **settings))
        return servers[-1]

    yield start
    for server in servers:
        server.stop()


@pytest.fixture
def start_shard(start_param_server: Callable[..., ParamServerThread]) -> Iterator[Any]:
    """Starts further parameter servers, and stops them before those that they belong to."""
    shards = []

    def start(registry: str) -> ShardThread:
        shards.append(ShardThread(registry))
        return shards[-1]

    yield start
    for shard in shards:
        shard.stop()


@pytest.fixture
def start_param_server_process() -> Iterator[Callable[..., ParamServerProcess]]:
    """Starts parameter servers as processes, and kills those left after the test."""
    servers = []

    def start(*arguments: str) -> ParamServerProcess:
        servers.append(ParamServerProcess(*arguments))
        return servers[-1]

    yield start
    for server in servers:
        server.stop()


@pytest.fixture
def param_server(start_param_server: Callable[..., ParamServerThread]) -> ParamServerThread:
    """A parameter server without a run."""
    return start_param_server()


@pytest.fixture
def config_json() -> str:
    """The smallest config that is valid."""
    return CONFIG_JSON


@pytest.fixture
def run_client(param_server: ParamServerThread) -> Iterator[RunClient]:
    """A client of `param_server`'s registry, on which there is a run."""
    with RunClient(param_server.address) as client:
        client.create_run("test", CONFIG_JSON)
        yield client


@pytest.fixture
def param_client(param_server: ParamServerThread, run_client: RunClient) -> Iterator[ParamClient]:
    """A client of `param_server`'s weight store."""
    with ParamClient(param_server.address, run_client.get_run().run.run_id) as client:
        yield client


@pytest.fixture
def gradient_run(
    start_param_server: Callable[..., ParamServerThread],
) -> Iterator[Callable[..., tuple[GradientClient, ParamClient]]]:
    """Creates runs, each on a server of its own, that apply gradients by descent of rate 1."""
    with contextlib.ExitStack() as stack:

        def create(
            topology: str = "async-gradients",
            *,
            weight: float = 0.0,
            tensors: Mapping[str, NDArray[Any]] | None = None,
            extra: Mapping[str, NDArray[Any]] | None = None,
            limits: Mapping[str, int] | None = None,
            param_server_config: Mapping[str, Any] | None = None,
            **gradients: Any,
        ) -> tuple[GradientClient, ParamClient]:
            plain = {"optimizer": "sgd", "learning_rate": 1.0, "max_grad_norm": 0}
            section = param_server_config or {}
            config = json.loads(CONFIG_JSON) | {
                "topology": topology,
                "gradients": plain | gradients,
                "param_server": section,
                "limits": limits or {},
            }
            param_server = start_param_server()
            run_client = stack.enter_context(RunClient(param_server.address))
            run = run_client.create_run("test", json.dumps(config))
            params = stack.enter_context(ParamClient(param_server.address, run.run_id))
            shapes = {"w": (2, 3), "b": (4,)}
            weights = tensors or {k: np.full(v, weight, np.float32) for k, v in shapes.items()}
            params.publish({**weights, **(extra or {})}, learner_step=0, expected_version=0)
            dtype = section.get("wire_dtype", "float32")
            client = GradientClient(param_server.address, run.run_id, wire_dtype=dtype)
            return stack.enter_context(client), params

        yield create
