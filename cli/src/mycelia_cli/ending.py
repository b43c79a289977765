"""How following a run ended."""

from dataclasses import dataclass

from mycelia_cli.errors import EXIT_FAILURE, EXIT_OK
from mycelia_cli.progress import Progress


@dataclass(frozen=True, kw_only=True, slots=True)
class Ending:
    """What the command has to say and to return after a run."""

    progress: Progress | None
    """The last that was seen of the run; None if it never began."""
    exit_code: int
    complaints: tuple[str, ...] = ()
    """Lines for stderr about what failed."""


def outcome_exit_code(progress: Progress) -> int:
    """Returns the exit code of a run that has ended by itself."""
    return EXIT_FAILURE if progress.outcome == "failed" else EXIT_OK
