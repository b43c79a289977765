"""What goes wrong for people, said in one line, and the exit codes that go with it."""

import difflib
from collections.abc import Iterable
from typing import ClassVar

EXIT_OK = 0
EXIT_FAILURE = 1
EXIT_BAD_INPUT = 2
EXIT_INTERRUPTED = 130
"""128 + SIGINT, as shells have it."""


class CommandError(Exception):
    """Ends the command with one line on stderr and this exit code."""

    exit_code: ClassVar[int] = EXIT_FAILURE


class InputError(CommandError):
    """Refuses what the person typed or wrote in a file."""

    exit_code = EXIT_BAD_INPUT


def did_you_mean(word: str, candidates: Iterable[str]) -> str:
    """Returns `; did you mean "x"?` for the nearest candidate, or an empty string."""
    nearest = difflib.get_close_matches(word, list(candidates), n=1, cutoff=0.5)
    return f'; did you mean "{nearest[0]}"?' if nearest else ""


def one_line(text: str) -> str:
    """Returns the text with all white space, line breaks too, folded to single spaces."""
    return " ".join(text.split())
