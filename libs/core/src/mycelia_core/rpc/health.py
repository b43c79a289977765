"""Asks a server for its health, for containers: `python -m mycelia_core.rpc.health HOST:PORT`."""

import sys
from collections.abc import Sequence

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

CHECK_SECONDS = 3.0
"""How long a server may take to answer."""


def check(address: str, service: str = "", timeout: float = CHECK_SECONDS) -> str:
    """Asks once, by the standard gRPC health protocol.

    Args:
      address: the server's, `host:port` or `unix:path`.
      service: the full name of one of its services; empty for the server as a whole.
      timeout: seconds to wait for the answer.

    Returns:
      `SERVING`, another status of the protocol, or why there was no answer.
    """
    with grpc.insecure_channel(address) as channel:
        request = health_pb2.HealthCheckRequest(service=service)
        try:
            answer = health_pb2_grpc.HealthStub(channel).Check(request, timeout=timeout)
        except grpc.RpcError as error:
            return f"{error.code().name}: {error.details()}"
    return str(health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status))


def main(argv: Sequence[str] | None = None) -> int:
    """Prints the status; returns 0 if it is `SERVING`, 1 if not, 2 for wrong arguments."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if len(arguments) not in (1, 2):
        sys.stderr.write("usage: python -m mycelia_core.rpc.health HOST:PORT [SERVICE]\n")
        return 2
    status = check(arguments[0], service="".join(arguments[1:]))
    sys.stdout.write(status + "\n")
    return 0 if status == "SERVING" else 1


if __name__ == "__main__":
    sys.exit(main())
