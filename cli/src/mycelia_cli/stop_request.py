"""The person's wish to stop: Ctrl-C or SIGTERM, as an event."""

import signal
import threading
from types import FrameType

from mycelia_cli.errors import EXIT_INTERRUPTED, EXIT_OK


class StopRequest:
    """Turns SIGINT and SIGTERM into an event. Made in the main thread.

    The first signal decides the exit code; further ones change nothing, so a
    second Ctrl-C cannot cut the stop short and leave processes behind.
    """

    def __init__(self) -> None:
        """Installs the handlers."""
        self.stopping = threading.Event()
        """Set once somebody wants the command to end."""
        self.exit_code = EXIT_OK
        """130 after Ctrl-C, 0 after SIGTERM, as supervisors expect."""
        signal.signal(signal.SIGINT, self._on_signal)
        signal.signal(signal.SIGTERM, self._on_signal)

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        if not self.stopping.is_set():
            self.exit_code = EXIT_INTERRUPTED if number == signal.SIGINT else EXIT_OK
            self.stopping.set()
