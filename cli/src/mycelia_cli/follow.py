"""Following a run: asking the registry how it is doing, and showing that."""

import sys
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Protocol, Self

from rich.console import Console

from mycelia.run.v1 import run_pb2 as pb
from mycelia_cli.errors import CommandError
from mycelia_cli.gradient_figures import read_gradients
from mycelia_cli.plain import PlainView
from mycelia_cli.progress import Progress, ProgressTracker
from mycelia_cli.view import LiveView
from mycelia_core.clients.run import RunClient
from mycelia_core.config import RunConfig
from mycelia_core.rpc.errors import StatusError, UnavailableError

_PERIOD_SECONDS = 0.25
_CALL_SECONDS = 1.0
_SILENCE_SECONDS = 60.0
"""How long the registry may be away before following it is given up."""


class View(Protocol):
    """Shows a run while it goes on."""

    def __enter__(self) -> Self:
        """Starts showing."""

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Ends showing; what was shown last stays."""

    def note(self, text: str) -> None:
        """Shows a line that is not about progress."""

    def update(self, progress: Progress) -> None:
        """Shows where the run stands now."""


def make_view() -> View:
    """Returns the live view if a person watches stdout, plain lines otherwise."""
    return LiveView(Console()) if sys.stdout.isatty() else PlainView(sys.stdout)


class Follower:
    """Keeps the newest state of one run; owned by one thread."""

    def __init__(self, client: RunClient, run: pb.Run, view: View) -> None:
        """Asks nothing yet.

        Args:
          client: reaches the registry.
          run: the run to follow.
          view: shows it.
        """
        self.progress: Progress | None = None
        """Where the run stood at the last answer; None before the first."""
        self.pids: frozenset[int] = frozenset()
        """The process ids of its living members, as of the last answer."""
        self._client = client
        self._run_id = run.run_id
        self._view = view
        self._tracker = ProgressTracker(RunConfig.model_validate_json(run.config_json))
        self._last_answer = time.monotonic()

    @property
    def is_finished(self) -> bool:
        """Whether the run had ended at the last answer."""
        return self.progress is not None and self.progress.is_finished

    def look(self) -> None:
        """Asks once, and shows the answer; a registry that is away for a while is borne.

        Raises:
          CommandError: it has been away for too long, or holds another run by now.
        """
        try:
            answer = self._client.get_run(self._run_id, timeout=_CALL_SECONDS)
        except (UnavailableError, TimeoutError) as error:
            silence = time.monotonic() - self._last_answer
            if silence > _SILENCE_SECONDS:
                raise CommandError(f"lost the run after {silence:.0f} s: {error}") from error
            return
        except StatusError as error:
            raise CommandError(f"lost the run: {error}") from error
        wanted = self._tracker.wants_gradients
        info = read_gradients(self._client, self._run_id, _CALL_SECONDS) if wanted else None
        self._last_answer = time.monotonic()
        self.pids = frozenset(member.pid for member in answer.members if member.alive)
        self.progress = self._tracker.update(answer, info)
        self._view.update(self.progress)

    def follow(self, stopping: threading.Event, ended: Callable[[], bool]) -> None:
        """Looks again and again until the run is finished, `stopping` is set, or `ended()`."""
        while not stopping.is_set() and not ended():
            self.look()
            if self.is_finished:
                return
            stopping.wait(_PERIOD_SECONDS)

    def finish(self, outcome: pb.Outcome.ValueType, detail: str) -> bool:
        """Ends the run for everybody; returns whether the registry heard it."""
        try:
            self._client.finish_run(outcome, detail)
        except (StatusError, TimeoutError):
            return False
        return True
