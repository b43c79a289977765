"""How a service process ends: on a signal, or with the process that started it."""

import asyncio
import os
import signal
import threading
import time
from types import FrameType

_PARENT_CHECK_SECONDS = 0.5


class StopSignal:
    """Turns SIGTERM and SIGINT into an event. Made once, in the main thread.

    A second signal changes nothing: the service is stopping already.
    """

    def __init__(self, *, exit_with_parent: bool = False) -> None:
        """Installs the handlers.

        Args:
          exit_with_parent: also stop when the parent process is gone, so that a
            launcher that is killed leaves nothing behind.
        """
        self.stopping = threading.Event()
        """Set once the service is to stop."""
        signal.signal(signal.SIGTERM, self._on_signal)
        signal.signal(signal.SIGINT, self._on_signal)
        if exit_with_parent:
            threading.Thread(
                target=self._watch_parent, args=(os.getppid(),), name="parent-watch", daemon=True
            ).start()

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        self.stopping.set()

    def _watch_parent(self, parent: int) -> None:
        while os.getppid() == parent:
            time.sleep(_PARENT_CHECK_SECONDS)
        self.stopping.set()

    async def wait(self, also: threading.Event | None = None) -> None:
        """Waits for the stop, or for `also`, on an event loop."""
        # Polled: a threading.Event cannot wake a loop, and asyncio's own signal
        # handlers would not serve the services that have no loop.
        while not self.stopping.is_set() and not (also and also.is_set()):
            await asyncio.sleep(0.05)
