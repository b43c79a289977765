"""A further parameter server, which keeps a part of the weights of another one's run."""

import asyncio
import threading

from mycelia.run.v1 import run_pb2
from mycelia_core.clients.run import RunClient
from mycelia_core.rpc.errors import UnavailableError
from mycelia_core.rpc.metrics import Metrics
from mycelia_core.rpc.server import Server, reachable_address
from mycelia_param_server.exports import shard_readings
from mycelia_param_server.shard_service import SERVICE_NAME, ShardService, add_shard_service

JOIN_SECONDS = 120.0
"""How long to wait for the run."""

_LOOK_SECONDS = 0.1

_LINGER_SECONDS = 1.0
"""How long a shard stays when the run has finished: the last weights are being saved."""


class WeightShard:
    """A shard of one run's weights. The event loop that starts it owns it."""

    def __init__(self, bind: str, max_weight_bytes: int, metrics: Metrics | None = None) -> None:
        """Prepares a shard.

        Args:
          bind: where it listens.
          max_weight_bytes: the most that a part may have.
          metrics: counts its calls, and exports what it keeps and does.
        """
        self._service = ShardService(max_weight_bytes)
        self._metrics = metrics
        self._server = Server(bind, interceptors=[metrics.interceptor] if metrics else [])
        self._server.add(add_shard_service, self._service, SERVICE_NAME)

    @property
    def address(self) -> str:
        """Where it listens, once it has started."""
        return self._server.address

    async def start(self) -> None:
        """Listens; refuses with `UNAVAILABLE` until it has joined.

        Raises:
          AddressInUseError: somebody else listens there.
        """
        if self._metrics:
            self._metrics.add(lambda: shard_readings(self._service))
        await self._server.start()

    async def serve_run(self, registry: str, advertise: str, stopping: threading.Event) -> None:
        """Joins the run and keeps its parts until the run ends or `stopping` is set.

        Args:
          registry: the address of the run's parameter server.
          advertise: where others reach this one; empty to find out.
          stopping: ends it early.

        Raises:
          TimeoutError: there was no run in time.
          StoppedError: `stopping` was set before there was one.
          StatusError: the registry refused, or is gone.
        """
        with RunClient(registry) as client:
            membership = await asyncio.to_thread(
                client.join,
                run_pb2.ROLE_PARAM_SHARD,
                address=advertise or reachable_address(self.address),
                wait_seconds=JOIN_SECONDS,
                stop=stopping,
            )
            self._service.begin(membership.run_id, membership.config)
            try:
                while not (stopping.is_set() or membership.finished.is_set()):
                    await asyncio.sleep(_LOOK_SECONDS)
                if not stopping.is_set():
                    await asyncio.sleep(_LINGER_SECONDS)
            finally:
                await asyncio.to_thread(membership.leave)
        if membership.lost:
            raise UnavailableError(f"the run registry at {registry} is gone")

    async def stop(self, grace_seconds: float = 1.0) -> None:
        """Gives calls the grace to end, and stops."""
        await self._server.stop(grace_seconds)
        self._service.stop()
