"""Real servers for the learner's tests, on an event loop in a thread of their own."""

import asyncio
import json
import threading

import numpy as np
import pytest
import torch

from mycelia_core.clients.replay import ReplayClient
from mycelia_core.clients.run import RunClient
from mycelia_core.config import RunConfig
from mycelia_core.seeds import seed_sequence
from mycelia_core.specs import ColumnSpec, Signature
from mycelia_param_server.server import ParamServer
from mycelia_replay.gate import Gate
from mycelia_replay.server import ReplayServer
from mycelia_replay.table import Table

# As in the learner itself: two threads slow small networks down.
torch.set_num_threads(1)

SIGNATURE = Signature.of(
    [
        ColumnSpec("observation", np.dtype(np.float32), (4,)),
        ColumnSpec("action", np.dtype(np.int64), (), 2),
    ]
)


def make_config(**sections):
    fields = {
        "name": "test",
        "env": {"id": "CartPole-v1"},
        "algorithm": {"name": "dqn", "target_update_period": 10},
        "network": {"hidden_sizes": [16]},
        "replay": {
            "capacity_rows": 2000,
            "min_items_to_sample": 50,
            "window": {"learn_rows": 1, "bootstrap_rows": 3, "period": 1, "context_rows": 0},
        },
        "learner": {"batch_size": 16, "publish_period_steps": 5, "sample_timeout_seconds": 20},
        "evaluation": {"solved_return": 100.0},
    }
    return RunConfig.model_validate(fields | sections)


def rows(count, seed=0):
    """Rows of one stream, in episodes of 10 actions."""
    rng = np.random.default_rng(seed)
    number = np.arange(count)
    return {
        "observation": rng.standard_normal((count, 4)).astype(np.float32),
        "action": rng.integers(2, size=count),
        "reward": np.ones(count, np.float32),
        "first": number % 11 == 0,
        "terminated": number % 11 == 10,
        "truncated": np.zeros(count, np.bool_),
    }


class Servers:
    """Starts servers on a loop of its own, and stops them."""

    def __init__(self):
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._started = []

    def start(self, server):
        self._started.append(server)
        self.call(server.start())
        return server

    def start_params(self, **settings):
        async def make():
            return ParamServer(**settings)

        return self.start(self.call(make()))

    def start_replay(self, run_id, config, signature=SIGNATURE):
        async def make():
            return ReplayServer()

        server = self.start(self.call(make()))

        async def open_tables():
            table = Table(config.replay, signature, seed_sequence(1, "replay"))
            server.open(run_id, [Gate(table)])

        self.call(open_tables())
        return server

    def call(self, work):
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(10)

    def stop(self):
        for server in reversed(self._started):
            self.call(server.stop(0.2))
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5)
        self._loop.close()


@pytest.fixture
def servers():
    servers = Servers()
    yield servers
    servers.stop()


@pytest.fixture
def run_client(servers):
    """A client of a parameter server without a run."""
    with RunClient(servers.start_params().address) as client:
        yield client


def create_run(client, config, **settings):
    return client.create_run(config.name, config.model_dump_json(), **settings)


def insert(address, run_id, count, seed=0):
    """Fills the table `train`, one stream per call."""
    columns = rows(count, seed)
    with ReplayClient(address, run_id) as client:
        writer = client.writer("train", [f"test/{seed}"], SIGNATURE, chunk_rows=50)
        for row in range(count):
            writer.append({name: values[row : row + 1] for name, values in columns.items()})
        writer.close(5)


def read_lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]
