"""The command that runs the replay service."""

import argparse
import asyncio
import socket
import sys
from collections.abc import Sequence

from mycelia_core.clients.waiting import StoppedError
from mycelia_core.lifecycle import StopSignal
from mycelia_core.logs import LEVELS, configure_logging
from mycelia_core.rpc.errors import StatusError
from mycelia_replay.server import ReplayServer
from mycelia_replay.service import serve_run


def main(argv: Sequence[str] | None = None) -> int:
    """Serves until the run ends, or until SIGTERM or SIGINT; returns the exit code."""
    arguments = _parse(argv)
    configure_logging("replay", arguments.log_level)
    stop = StopSignal(exit_with_parent=arguments.exit_with_parent)
    try:
        asyncio.run(_serve(arguments, stop))
    except StoppedError:
        return 0
    except (OSError, StatusError, ValueError) as error:  # a TimeoutError is an OSError
        sys.stderr.write(f"replay: {error}\n")
        return 1
    return 0


async def _serve(arguments: argparse.Namespace, stop: StopSignal) -> None:
    server = ReplayServer(arguments.bind)
    await server.start()
    sys.stdout.write(f"ready address={server.address}\n")
    sys.stdout.flush()
    try:
        advertised = arguments.advertise or _reachable(server.address)
        await serve_run(server, arguments.join, advertised, stop)
    finally:
        await server.stop()


def _reachable(address: str) -> str:
    """Returns an address for others; a wildcard becomes this host's name."""
    host, _, port = address.rpartition(":")
    if host in ("0.0.0.0", "[::]"):
        return f"{socket.gethostname()}:{port}"
    return address


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="mycelia_replay",
        description="Keeps rows of experience and hands out windows of them.",
    )
    parser.add_argument(
        "--join", required=True, metavar="ADDRESS", help="the parameter server's address"
    )
    parser.add_argument(
        "--bind",
        default="127.0.0.1:0",
        metavar="HOST:PORT",
        help="where to listen; port 0 takes a free one (default: %(default)s)",
    )
    parser.add_argument(
        "--advertise",
        metavar="HOST:PORT",
        help="where others reach this service (default: where it listens)",
    )
    parser.add_argument(
        "--exit-with-parent",
        action="store_true",
        help="stop when the process that started this one is gone",
    )
    parser.add_argument(
        "--log-level", choices=LEVELS, default="info", help="(default: %(default)s)"
    )
    return parser.parse_args(argv)
