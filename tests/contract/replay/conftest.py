"""A real replay server in a thread of the test, and clients of it."""

import asyncio
import threading
from collections.abc import Callable, Iterator, Sequence

import grpc
import numpy as np
import pytest

from mycelia.replay.v1 import replay_pb2 as pb
from mycelia.replay.v1 import replay_pb2_grpc
from mycelia_core.clients.replay import ReplayClient
from mycelia_core.codec import encode
from mycelia_core.config import TableConfig, WindowConfig
from mycelia_core.rpc.channel import open_channel
from mycelia_core.specs import ColumnSpec, Signature
from mycelia_replay.gate import Gate
from mycelia_replay.server import ReplayServer
from mycelia_replay.table import Table

RUN_ID = "the-run"
SIGNATURE = Signature.of(
    [
        ColumnSpec("observation", np.dtype(np.float32), (4,)),
        ColumnSpec("action", np.dtype(np.int64), (), 2),
    ]
)


class ReplayServerThread:
    """A replay server on an event loop in a thread of its own."""

    def __init__(self, table: Table | None, bind: str = "127.0.0.1:0") -> None:
        self.table = table
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._stopped = False
        try:
            self._server = self._run(self._start(bind))
        except OSError:
            self._stop_loop()
            raise
        self.address = self._server.address

    def open(self, table: Table) -> None:
        """Begins to serve a table, if the server was started without one."""

        async def begin() -> None:
            self._server.open(RUN_ID, [Gate(table)])

        self.table = table
        self._run(begin())

    def stop(self, grace_seconds: float = 0.2) -> None:
        if not self._stopped:
            self._run(self._server.stop(grace_seconds))
            self._stop_loop()

    def _stop_loop(self) -> None:
        self._stopped = True
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5)
        self._loop.close()

    async def _start(self, bind: str) -> ReplayServer:
        server = ReplayServer(bind)
        await server.start()
        if self.table:
            server.open(RUN_ID, [Gate(self.table)])
        return server

    def _run(self, work):
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(10)


def _make_table(signature: Signature = SIGNATURE, **settings) -> Table:
    of_window = {k: settings.pop(k) for k in list(settings) if k in WindowConfig.model_fields}
    settings.setdefault("capacity_rows", 1000)
    config = TableConfig(**settings, window=WindowConfig(**of_window))
    return Table(config, signature, np.random.SeedSequence(1))


@pytest.fixture
def make_table() -> Callable[..., Table]:
    """Makes tables; keywords of `WindowConfig` go to the window, others to the table."""
    return _make_table


@pytest.fixture
def start_server() -> Iterator[Callable[..., ReplayServerThread]]:
    """Starts any number of replay servers, and stops them after the test."""
    servers = []

    def start(table: Table | None = None, bind: str = "127.0.0.1:0") -> ReplayServerThread:
        servers.append(ReplayServerThread(table, bind))
        return servers[-1]

    yield start
    for server in servers:
        server.stop()


@pytest.fixture
def connect() -> Iterator[Callable[..., ReplayClient]]:
    """Opens clients of servers, and closes them after the test."""
    clients = []

    def open_client(server: ReplayServerThread, run_id: str = RUN_ID) -> ReplayClient:
        clients.append(ReplayClient(server.address, run_id))
        return clients[-1]

    yield open_client
    for client in clients:
        client.close()


@pytest.fixture
def stub_of() -> Iterator[Callable[..., replay_pb2_grpc.ReplayServiceStub]]:
    """Opens bare stubs, for requests that no client would send."""
    channels: list[grpc.Channel] = []

    def open_stub(server: ReplayServerThread) -> replay_pb2_grpc.ReplayServiceStub:
        channels.append(open_channel(server.address))
        return replay_pb2_grpc.ReplayServiceStub(channels[-1])

    yield open_stub
    for channel in channels:
        channel.close()


@pytest.fixture
def signature() -> Signature:
    """The signature of the tables."""
    return SIGNATURE


def _columns(count: int, first_observation: int, flags: Sequence[str]) -> dict[str, np.ndarray]:
    marks = [*flags, *[""] * (count - len(flags))]
    numbers = np.arange(first_observation, first_observation + count, dtype=np.float32)
    return {
        "observation": np.repeat(numbers[:, None], 4, axis=1),
        "action": np.zeros(count, np.int64),
        "reward": np.ones(count, np.float32),
        "first": np.array(["f" in mark for mark in marks]),
        "terminated": np.array(["t" in mark for mark in marks]),
        "truncated": np.array(["c" in mark for mark in marks]),
    }


@pytest.fixture
def columns_of() -> Callable[..., dict[str, np.ndarray]]:
    """Makes the columns of `count` rows; `flags` holds letters f, t, c for the first of them."""

    def make(count: int, first_observation: int = 0, flags: Sequence[str] = ("f",)):
        return _columns(count, first_observation, flags)

    return make


@pytest.fixture
def insert_request() -> Callable[..., pb.InsertRequest]:
    """Makes a valid insert request of `count` rows of one stream."""

    def make(
        count: int = 5,
        *,
        stream: str = "a",
        start_row: int = 0,
        sequence: int = 1,
        flags: Sequence[str] = ("f",),
        priorities: Sequence[float] | None = None,
    ) -> pb.InsertRequest:
        columns = _columns(count, start_row, flags)
        known = None if priorities is None else encode(np.asarray(priorities, np.float64))
        return pb.InsertRequest(
            run_id=RUN_ID,
            table="train",
            sequence=sequence,
            segments=[pb.Segment(stream_id=stream, start_row=start_row, row_count=count)],
            columns=[pb.ColumnData(name=k, values=encode(v)) for k, v in columns.items()],
            priorities=known,
        )

    return make
