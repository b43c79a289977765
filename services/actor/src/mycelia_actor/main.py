"""The command line of the actor service."""

import argparse
import logging
from collections.abc import Callable, Sequence
from threading import Event

from mycelia_actor.actor import run_actor
from mycelia_actor.environments.make import MakeEnvironmentError
from mycelia_actor.evaluator import run_evaluator
from mycelia_actor.joining import MembershipLostError, has_finished
from mycelia_core.clients.run import RunFinishedError
from mycelia_core.clients.waiting import StoppedError
from mycelia_core.lifecycle import StopSignal
from mycelia_core.logs import LEVELS, configure_logging
from mycelia_core.rpc.errors import StatusError

logger = logging.getLogger(__name__)

_ROLES: dict[str, Callable[[str, Event], None]] = {
    "actor": run_actor,
    "evaluator": run_evaluator,
}


def main(argv: Sequence[str] | None = None) -> int:
    """Runs an actor or evaluator until its run finishes or a signal comes.

    Returns:
      the exit code: 0 after a finished run or a signal, 1 after an error;
      argparse itself exits with 2 on bad arguments.
    """
    arguments = _parse(argv)
    configure_logging(arguments.role, arguments.log_level)
    stop = StopSignal(exit_with_parent=arguments.exit_with_parent).stopping
    try:
        _ROLES[arguments.role](arguments.join, stop)
    except (StoppedError, RunFinishedError) as error:
        logger.info("%s", error)
    except (StatusError, TimeoutError) as error:
        # When a run finishes its servers go, and calls that are under way fail.
        if not stop.is_set() and not has_finished(arguments.join):
            logger.error("%s", error)
            return 1
        logger.info("stopped: %s", error)
    except (MembershipLostError, MakeEnvironmentError, ValueError) as error:
        logger.error("%s", error)
        return 1
    return 0


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m mycelia_actor",
        description="Steps environments and sends rows to replay, or plays greedy episodes.",
    )
    parser.add_argument(
        "--join",
        required=True,
        metavar="HOST:PORT",
        help="the run registry, which is on the parameter server",
    )
    parser.add_argument(
        "--role",
        choices=sorted(_ROLES),
        default="actor",
        help="what to do in the run (default: actor)",
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
