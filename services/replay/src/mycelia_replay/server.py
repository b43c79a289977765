"""The replay server: the servicer behind a listening port."""

from collections.abc import Iterable

from mycelia_core.rpc.metrics import Metrics
from mycelia_core.rpc.server import Server
from mycelia_replay.checkpoint.checkpointer import Checkpointer
from mycelia_replay.exports import readings
from mycelia_replay.gate import Gate
from mycelia_replay.servicer import SERVICE_NAME, ReplayServicer, add_to_server


class ReplayServer:
    """Listens at once, serves tables once it has some. The event loop that starts it owns it."""

    def __init__(self, bind: str = "127.0.0.1:0", metrics: Metrics | None = None) -> None:
        """Prepares a server.

        Args:
          bind: `host:port` (port 0 takes a free one) or `unix:path`.
          metrics: counts its calls and exports its tables.
        """
        self._servicer = ReplayServicer()
        self._server = Server(bind, interceptors=[metrics.interceptor] if metrics else [])
        self._metrics = metrics
        self._server.add(add_to_server, self._servicer, SERVICE_NAME)

    @property
    def address(self) -> str:
        """Where it listens, once it has started."""
        return self._server.address

    async def start(self) -> None:
        """Listens; callers get `UNAVAILABLE` until `open`.

        Raises:
          AddressInUseError: somebody else listens there.
        """
        if self._metrics:
            self._metrics.add(lambda: readings(*self._servicer.describe()))
        await self._server.start()

    def open(
        self, run_id: str, gates: Iterable[Gate], checkpointer: Checkpointer | None = None
    ) -> None:
        """Takes ownership of a run's tables and serves them."""
        self._servicer.open(run_id, gates, checkpointer)

    async def stop(self, grace_seconds: float = 0.5) -> None:
        """Sends waiting callers away, then ends what is left after the grace."""
        self._servicer.close()
        await self._server.stop(grace_seconds)
