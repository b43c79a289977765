"""The command line of the inference service."""

import argparse
import asyncio
import logging
import sys
from collections.abc import Sequence

from mycelia_actor.inference.service import InferenceServer, serve_run
from mycelia_actor.joining import MembershipLostError, has_finished
from mycelia_core.clients.run import RunFinishedError
from mycelia_core.clients.waiting import StoppedError
from mycelia_core.lifecycle import StopSignal
from mycelia_core.logs import LEVELS, configure_logging
from mycelia_core.rpc.errors import StatusError
from mycelia_core.rpc.server import reachable_address

logger = logging.getLogger(__name__)


def main(argv: Sequence[str] | None = None) -> int:
    """Serves until the run ends, or until SIGTERM or SIGINT; returns the exit code.

    Returns:
      0 after a finished run or a signal, 1 after an error; argparse itself exits with 2
      on bad arguments.
    """
    arguments = _parse(argv)
    configure_logging("inference", arguments.log_level)
    stop = StopSignal(exit_with_parent=arguments.exit_with_parent)
    try:
        asyncio.run(_serve(arguments, stop))
    except (StoppedError, RunFinishedError) as error:
        logger.info("%s", error)
    except (StatusError, MembershipLostError, OSError, ValueError) as error:
        # When a run finishes its servers go, and calls that are under way fail.
        if not stop.stopping.is_set() and not has_finished(arguments.join):
            logger.error("%s", error)
            return 1
        logger.info("stopped: %s", error)
    return 0


async def _serve(arguments: argparse.Namespace, stop: StopSignal) -> None:
    server = InferenceServer(arguments.bind)
    await server.start()
    sys.stdout.write(f"ready address={server.address}\n")
    sys.stdout.flush()
    try:
        advertised = arguments.advertise or reachable_address(server.address)
        await serve_run(server, arguments.join, advertised, stop)
    finally:
        await server.stop()


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m mycelia_actor.inference",
        description="Evaluates the policy's network for the actors of a run.",
    )
    parser.add_argument(
        "--join",
        required=True,
        metavar="HOST:PORT",
        help="the run registry, which is on the parameter server",
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
        help="where actors reach this service (default: where it listens)",
    )
    parser.add_argument(
        "--exit-with-parent",
        action="store_true",
        help="stop when the process that started this one is gone",
    )
    parser.add_argument(
        "--log-level", choices=LEVELS, default="info", help="what goes to stderr (default: info)"
    )
    return parser.parse_args(argv)
