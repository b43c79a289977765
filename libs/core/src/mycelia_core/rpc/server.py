"""The gRPC server that every service starts: health, reflection, limits, graceful drain."""

import socket
from collections.abc import Callable, Sequence
from typing import Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_health.v1._async import HealthServicer
from grpc_reflection.v1alpha import reflection

from mycelia_core.rpc.errors import ErrorInterceptor
from mycelia_core.rpc.options import SERVER_OPTIONS

_SERVING = health_pb2.HealthCheckResponse.SERVING


class AddressInUseError(OSError):
    """The address to listen on is taken, or cannot be listened on."""


class Server:
    """A `grpc.aio` server. The event loop that starts it owns it.

    server = Server("127.0.0.1:0")
    server.add(add_ReplayServiceServicer_to_server, servicer, "mycelia.replay.v1.ReplayService")
    await server.start()
    ...
    await server.stop(grace_seconds=2)
    """

    def __init__(
        self, bind: str = "127.0.0.1:0", interceptors: Sequence[grpc.aio.ServerInterceptor] = ()
    ) -> None:
        """Prepares a server for `bind`: `host:port` (port 0 takes a free one) or `unix:path`."""
        self._bind = bind
        self._server = grpc.aio.server(
            interceptors=[ErrorInterceptor(), *interceptors], options=SERVER_OPTIONS
        )
        self._health = HealthServicer()
        self._service_names: list[str] = []
        self.address = ""
        """Where the server listens, once it has started."""

    def add(
        self, add_to_server: Callable[[Any, Any], None], servicer: object, service_name: str
    ) -> None:
        """Adds a servicer by the generated function for it. Before `start`."""
        add_to_server(servicer, self._server)
        self._service_names.append(service_name)

    async def start(self) -> None:
        """Listens and reports `SERVING`.

        Raises:
          AddressInUseError: somebody else listens there, or the address is not ours.
        """
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        names = [*self._service_names, health_pb2.DESCRIPTOR.services_by_name["Health"].full_name]
        reflection.enable_server_reflection([*names, reflection.SERVICE_NAME], self._server)
        try:
            port = self._server.add_insecure_port(self._bind)
        except RuntimeError as error:
            raise AddressInUseError(
                f"cannot listen on {self._bind}: the port is in use, or the address not this host's"
            ) from error
        host, _, _ = self._bind.rpartition(":")
        self.address = self._bind if self._bind.startswith("unix:") else f"{host}:{port}"
        await self._server.start()
        for name in ["", *self._service_names]:
            await self._health.set(name, _SERVING)

    async def stop(self, grace_seconds: float = 2.0) -> None:
        """Reports `NOT_SERVING`, takes no new calls, and ends those left after the grace."""
        await self._health.enter_graceful_shutdown()
        await self._server.stop(grace_seconds)


def reachable_address(address: str) -> str:
    """Returns an address for others; a wildcard becomes this host's name."""
    host, _, port = address.rpartition(":")
    if host in ("0.0.0.0", "[::]"):
        return f"{socket.gethostname()}:{port}"
    return address
