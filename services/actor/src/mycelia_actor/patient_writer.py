"""A sink of rows that waits for replay as long as the actor lives."""

import logging
import threading
import time
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from mycelia_actor.environments.spaces import Columns
from mycelia_core.clients.sharded_writer import AnyWriter
from mycelia_core.clients.trajectory_writer import BackPressureTimeout
from mycelia_core.clients.waiting import StoppedError

logger = logging.getLogger(__name__)

ATTEMPT_SECONDS = 0.2
"""What the writer's own timeout is to be: how soon a wait notices that the actor stops."""


class PatientWriter:
    """Appends rows and, while replay takes none, waits and says so now and then. A `RowSink`.

    The rate limiter may be closed for as long as the learner is away, and the
    replay service may be started again: neither is a reason to give up.
    """

    def __init__(
        self,
        writer: AnyWriter,
        on_wait: Callable[[], None],
        report_seconds: float,
        stop: threading.Event,
    ) -> None:
        """Writes to `writer`, whose own timeout is `ATTEMPT_SECONDS`.

        Args:
          writer: takes the rows. It stays the caller's.
          on_wait: called every `ATTEMPT_SECONDS` of a wait, so that counters stay true.
          report_seconds: how long a wait may be before it is logged.
          stop: ends waits.
        """
        self._writer = writer
        self._on_wait = on_wait
        self._report_seconds = report_seconds
        self._stop = stop

    def append(
        self,
        columns: Columns,
        *,
        streams: NDArray[np.int64] | None = None,
        priorities: NDArray[np.float64] | None = None,
    ) -> None:
        """Appends one row to each of these streams, or to all; columns are `[n, ...]`.

        Raises:
          StoppedError: `stop` was set while it waited; the rows are not recorded.
          StatusError: the server refused rows.
        """
        next_report = time.monotonic() + self._report_seconds
        while True:
            try:
                self._writer.append(columns, streams=streams, priorities=priorities)
            except BackPressureTimeout as error:
                if self._stop.is_set():
                    raise StoppedError(f"stopped while waiting: {error}") from error
                self._on_wait()
                if time.monotonic() >= next_report:
                    logger.warning(
                        "replay has taken no rows for %g s, waiting on", self._report_seconds
                    )
                    next_report = time.monotonic() + self._report_seconds
            else:
                return

    def drop(self, stream: int) -> None:
        """Forgets what has not been sent of the stream's running episode."""
        self._writer.drop(stream)
