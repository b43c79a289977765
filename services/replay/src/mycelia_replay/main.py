"""The command that runs the replay service."""

import argparse
import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path

from mycelia_core.clients.waiting import StoppedError
from mycelia_core.lifecycle import StopSignal
from mycelia_core.logs import LEVELS, configure_logging
from mycelia_core.rpc.errors import StatusError
from mycelia_core.rpc.metrics import Metrics
from mycelia_core.rpc.server import reachable_address
from mycelia_replay.alone import parse_table, serve_alone
from mycelia_replay.checkpoint.storage import Storage
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
    metrics = Metrics() if arguments.metrics_port is not None else None
    server = ReplayServer(arguments.bind, metrics)
    if metrics:
        host = arguments.bind.rpartition(":")[0].strip("[]")
        metrics.serve(host, arguments.metrics_port)
    await server.start()
    sys.stdout.write(f"ready address={server.address}\n")
    sys.stdout.flush()
    try:
        advertised = arguments.advertise or reachable_address(server.address)
        storage = _storage(arguments)
        if arguments.join:
            await serve_run(server, arguments.join, advertised, stop, storage)
        else:
            await serve_alone(
                server,
                [parse_table(text) for text in arguments.table],
                seed=arguments.seed,
                storage=storage,
                checkpoint_period_seconds=arguments.checkpoint_period_seconds,
                stop=stop,
            )
    finally:
        await server.stop()
        if metrics:
            metrics.close()


def _storage(arguments: argparse.Namespace) -> Storage | None:
    if not arguments.checkpoint_dir:
        return None
    return Storage(arguments.checkpoint_dir, arguments.restore)


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="mycelia_replay",
        description="Keeps rows of experience and hands out windows of them.",
    )
    parser.add_argument(
        "--join",
        metavar="ADDRESS",
        help="the parameter server's address; otherwise tables come from --table or on request",
    )
    parser.add_argument(
        "--table",
        action="append",
        default=[],
        metavar="SETTINGS",
        help="without --join: a table, such as name=train,capacity_rows=100000,"
        "columns=observation:uint8:84x84@lz4+action:int64; may come several times",
    )
    parser.add_argument(
        "--seed", type=int, default=1, help="with --table: of the draws (default: %(default)s)"
    )
    parser.add_argument(
        "--checkpoint-dir",
        type=Path,
        metavar="DIR",
        help="where checkpoints go, and are restored from at start; one per server",
    )
    parser.add_argument(
        "--checkpoint-period-seconds",
        type=float,
        default=60.0,
        metavar="SECONDS",
        help="with --table: from one checkpoint to the next, 0 for on request only; "
        "a run has replay.checkpoint_period_seconds (default: %(default)s)",
    )
    parser.add_argument(
        "--restore",
        type=Path,
        metavar="DIR",
        help="another server's or run's checkpoints, for when --checkpoint-dir has none",
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
        "--metrics-port",
        type=int,
        metavar="PORT",
        help="serve Prometheus metrics there, on the host of --bind (default: not at all)",
    )
    parser.add_argument(
        "--exit-with-parent",
        action="store_true",
        help="stop when the process that started this one is gone",
    )
    parser.add_argument(
        "--log-level", choices=LEVELS, default="info", help="(default: %(default)s)"
    )
    arguments = parser.parse_args(argv)
    if arguments.join and arguments.table:
        parser.error("--table does not go with --join")
    if arguments.restore and not arguments.checkpoint_dir:
        parser.error("--restore goes with --checkpoint-dir")
    return arguments
