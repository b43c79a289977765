"""Looks at the run every now and then, and tells those who want to know."""

import logging
import threading
from collections.abc import Callable, Sequence

from mycelia.run.v1 import run_pb2 as pb
from mycelia_core.clients.run import RunClient
from mycelia_core.rpc.errors import StatusError

PERIOD_SECONDS = 0.25

Observer = Callable[[pb.GetRunResponse], None]

logger = logging.getLogger(__name__)


class Monitor:
    """Asks the registry about the run, in a daemon thread that also runs the observers."""

    def __init__(
        self,
        client: RunClient,
        run_id: str,
        observers: Sequence[Observer],
        *,
        period_seconds: float = PERIOD_SECONDS,
    ) -> None:
        """Starts looking."""
        self._client = client
        self._run_id = run_id
        self._observers = observers
        self._period_seconds = period_seconds
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="monitor", daemon=True)
        self._thread.start()

    def close(self, timeout: float) -> None:
        """Looks a last time and ends the thread, in at most `timeout` seconds."""
        self._closing.set()
        self._thread.join(timeout)

    def _run(self) -> None:
        while not self._closing.wait(self._period_seconds):
            self._look()
        self._look()

    def _look(self) -> None:
        try:
            response = self._client.get_run(self._run_id, timeout=2.0)
        except (StatusError, TimeoutError) as error:
            logger.debug("cannot see the run: %s", error)
            return
        for observe in self._observers:
            try:
                observe(response)
            except Exception:
                # A full disk, say, is no reason to stop deciding when the run ends.
                logger.exception("an observer of the run failed")
