"""The command line of the learner service."""

import argparse
import logging
from collections.abc import Sequence
from pathlib import Path

from mycelia_core.clients.run import RunFinishedError
from mycelia_core.clients.waiting import StoppedError
from mycelia_core.lifecycle import StopSignal
from mycelia_core.logs import LEVELS, configure_logging
from mycelia_core.rpc.errors import StatusError
from mycelia_learner.service import LearnerOptions, serve

logger = logging.getLogger(__name__)


def main(argv: Sequence[str] | None = None) -> int:
    """Trains until the run finishes or a signal comes.

    Returns:
      the exit code: 0 after a finished run or a signal, 1 after an error; argparse itself exits
      with 2 on bad arguments.
    """
    arguments = _parse(argv)
    configure_logging("learner", arguments.log_level)
    stop = StopSignal(exit_with_parent=arguments.exit_with_parent).stopping
    options = LearnerOptions(
        join=arguments.join,
        runs_dir=arguments.runs_dir,
        run_dir=arguments.run_dir,
        resume=arguments.resume,
    )
    try:
        serve(options, stop)
    except (StoppedError, RunFinishedError) as error:
        logger.info("%s", error)
    except (StatusError, TimeoutError, ValueError, OSError) as error:
        logger.error("%s", error)
        return 1
    return 0


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m mycelia_learner",
        description="Turns batches of experience into better weights.",
    )
    parser.add_argument(
        "--join",
        required=True,
        metavar="HOST:PORT",
        help="the run registry, which is on the parameter server",
    )
    parser.add_argument(
        "--runs-dir",
        type=Path,
        default=Path("runs"),
        metavar="DIR",
        help="where to make the run's folder (default: %(default)s)",
    )
    parser.add_argument(
        "--run-dir",
        type=Path,
        metavar="DIR",
        help="the run's folder itself; one that holds a checkpoint is gone on from",
    )
    parser.add_argument(
        "--resume",
        type=Path,
        metavar="RUN_DIR",
        help="go on from the newest whole checkpoint of this run",
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
