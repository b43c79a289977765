"""The command that runs the parameter server."""

import argparse
import asyncio
import sys
from collections.abc import Coroutine, Sequence
from pathlib import Path

from mycelia_core.clients.waiting import StoppedError
from mycelia_core.lifecycle import StopSignal
from mycelia_core.logs import LEVELS, configure_logging
from mycelia_core.rpc.errors import StatusError
from mycelia_core.rpc.metrics import Metrics
from mycelia_core.rpc.server import AddressInUseError
from mycelia_param_server.checkpoint import BrokenCheckpointError
from mycelia_param_server.server import (
    DEFAULT_CHECKPOINT_PERIOD_SECONDS,
    DEFAULT_LEASE_SECONDS,
    DEFAULT_MAX_WEIGHT_BYTES,
    ParamServer,
)
from mycelia_param_server.shard import WeightShard


def main(argv: Sequence[str] | None = None) -> int:
    """Serves until SIGTERM or SIGINT; returns the exit code."""
    arguments = _parse(argv)
    configure_logging("param-server", arguments.log_level)
    stop = StopSignal(exit_with_parent=arguments.exit_with_parent)
    try:
        asyncio.run((_serve_shard if arguments.join else _serve)(arguments, stop))
    except StoppedError:
        return 0
    except (AddressInUseError, BrokenCheckpointError, StatusError, TimeoutError) as error:
        sys.stderr.write(f"param-server: {error}\n")
        return 1
    return 0


async def _serve(arguments: argparse.Namespace, stop: StopSignal) -> None:
    metrics = _serve_metrics(arguments)
    server = ParamServer(
        arguments.bind,
        metrics=metrics,
        lease_seconds=arguments.lease_seconds,
        max_weight_bytes=arguments.max_weight_bytes,
        checkpoint_dir=arguments.checkpoint_dir,
        checkpoint_period_seconds=arguments.checkpoint_period_seconds,
        restore_from=arguments.restore,
        # Who comes for a new run must not be told that the last one is over.
        keep_finished=not arguments.exit_after_run,
    )
    await server.start()
    sys.stdout.write(f"ready address={server.address}\n")
    sys.stdout.flush()
    if arguments.exit_after_run:
        await _either(stop.wait(), server.wait_until_over())
    else:
        await stop.wait()
    await server.stop()
    if metrics:
        metrics.close()


async def _serve_shard(arguments: argparse.Namespace, stop: StopSignal) -> None:
    metrics = _serve_metrics(arguments)
    shard = WeightShard(arguments.bind, arguments.max_weight_bytes, metrics)
    await shard.start()
    sys.stdout.write(f"ready address={shard.address}\n")
    sys.stdout.flush()
    try:
        await shard.serve_run(arguments.join, arguments.advertise, stop.stopping)
    finally:
        await shard.stop()
        if metrics:
            metrics.close()


def _serve_metrics(arguments: argparse.Namespace) -> Metrics | None:
    if arguments.metrics_port is None:
        return None
    metrics = Metrics()
    metrics.serve(arguments.bind.rpartition(":")[0].strip("[]"), arguments.metrics_port)
    return metrics


async def _either(*waits: Coroutine[None, None, None]) -> None:
    tasks = [asyncio.create_task(wait) for wait in waits]
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in tasks:
        task.cancel()


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="mycelia_param_server",
        description="Hands out the newest weights, and keeps the registry of the run.",
    )
    parser.add_argument(
        "--bind",
        default="127.0.0.1:0",
        metavar="HOST:PORT",
        help="where to listen; port 0 takes a free one (default: %(default)s)",
    )
    parser.add_argument(
        "--join",
        metavar="ADDRESS",
        help="keep a part of the weights of the run whose parameter server is there, as one of "
        "its param_server.shards; without it, keep a run's registry and its weights",
    )
    parser.add_argument(
        "--advertise",
        default="",
        metavar="HOST:PORT",
        help="with --join: where others reach this shard (default: where it listens)",
    )
    parser.add_argument(
        "--lease-seconds",
        type=_positive_seconds,
        default=DEFAULT_LEASE_SECONDS,
        metavar="SECONDS",
        help="how long a membership lasts without a heartbeat (default: %(default)s)",
    )
    parser.add_argument(
        "--max-weight-bytes",
        type=int,
        default=DEFAULT_MAX_WEIGHT_BYTES,
        metavar="BYTES",
        help="the most that one version of the weights may have (default: %(default)s)",
    )
    parser.add_argument(
        "--exit-after-run",
        action="store_true",
        help="stop when the run has finished and its members have left, not only on a signal",
    )
    parser.add_argument(
        "--checkpoint-dir",
        type=Path,
        metavar="DIR",
        help="where to keep run and weights for a server that takes this one's place; "
        "what is there already is gone on from (default: nowhere)",
    )
    parser.add_argument(
        "--restore",
        type=Path,
        metavar="DIR",
        help="an earlier run's checkpoints: a new run with gradients goes on from its weights and "
        "optimizer",
    )
    parser.add_argument(
        "--checkpoint-period-seconds",
        type=_positive_seconds,
        default=DEFAULT_CHECKPOINT_PERIOD_SECONDS,
        metavar="SECONDS",
        help="how often weights are written there (default: %(default)s)",
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
    return parser.parse_args(argv)


def _positive_seconds(text: str) -> float:
    seconds = float(text)
    if not seconds > 0:
        raise argparse.ArgumentTypeError(f"expected more than 0 seconds, got {text}")
    return seconds
