"""Waiting for what another process brings about: back-off, a deadline, an early end."""

import logging
import random
import threading
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

logger = logging.getLogger(__name__)

LOG_PERIOD_SECONDS = 10.0
"""How often a wait that goes on says what it waits for."""


class StoppedError(Exception):
    """A wait ended early because its stop event was set."""


class NotYetError(Exception):
    """What is waited for is not there yet; the text says what was found instead."""


class Backoff:
    """Delays that double up to a limit, each shortened by chance by up to a half.

    The jitter keeps the members that lost one server from coming back all at once.
    """

    def __init__(self, first_seconds: float = 0.05, longest_seconds: float = 2.0) -> None:
        """Starts with the shortest delay."""
        self._first_seconds = first_seconds
        self._longest_seconds = longest_seconds
        self._next_seconds = first_seconds

    def next_seconds(self) -> float:
        """Returns how long to wait now, and doubles the delay after it."""
        delay = self._next_seconds
        self._next_seconds = min(2 * delay, self._longest_seconds)
        return delay * random.uniform(0.5, 1.0)

    def reset(self) -> None:
        """Goes back to the shortest delay, after a success."""
        self._next_seconds = self._first_seconds


def poll(
    attempt: Callable[[], T],
    *,
    waiting_for: str,
    timeout: float,
    stop: threading.Event | None = None,
    longest_delay_seconds: float = 0.5,
) -> T:
    """Calls `attempt` until it returns, however often it raises `NotYetError`.

    Args:
      attempt: what to try; every other exception of it ends the wait.
      waiting_for: named in the log and in errors, for example `the run`.
      timeout: seconds after which the wait ends; at least one attempt is made.
      stop: ends the wait when it is set.
      longest_delay_seconds: how far apart attempts are at most.

    Raises:
      TimeoutError: the time was up; the text holds the last attempt's reason.
      StoppedError: `stop` was set.
    """
    stop = stop or threading.Event()
    backoff = Backoff(longest_seconds=longest_delay_seconds)
    start = time.monotonic()
    next_log = start + LOG_PERIOD_SECONDS
    while not stop.is_set():
        try:
            return attempt()
        except NotYetError as error:
            reason = str(error)
        now = time.monotonic()
        if now - start >= timeout:
            raise TimeoutError(f"waited {timeout:g} s for {waiting_for}: {reason}")
        if now >= next_log:
            logger.info("waiting for %s since %.0f s: %s", waiting_for, now - start, reason)
            next_log = now + LOG_PERIOD_SECONDS
        stop.wait(min(backoff.next_seconds(), start + timeout - now))
    raise StoppedError(f"stopped while waiting for {waiting_for}")
