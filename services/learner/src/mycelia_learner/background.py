"""Work that must not hold up the training loop, done in a thread of its own."""

import logging
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")

logger = logging.getLogger(__name__)


class LatestWins(Generic[T]):
    """Hands the newest thing put to a function, one at a time, in a daemon thread.

    What comes while the function works replaces what waits: nothing queues up behind slow work.
    Any thread may call `put`; it never waits for the work.
    """

    def __init__(self, name: str, work: Callable[[T], object]) -> None:
        """Starts the thread. An error of `work` is logged, and the next thing is taken."""
        self._name = name
        self._work = work
        self._changed = threading.Condition()
        self._waiting: list[T] = []
        self._closing = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def put(self, item: T) -> None:
        """Offers the newest thing to work on."""
        with self._changed:
            self._waiting = [item]
            self._changed.notify()

    def close(self, timeout: float) -> bool:
        """Finishes what waits and ends the thread; says whether that came about in time."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while (item := self._take()) is not None:
            try:
                self._work(item[0])
            except Exception as error:  # noqa: BLE001 - the training goes on without this one
                logger.error("%s failed: %s", self._name, error)

    def _take(self) -> list[T] | None:
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._closing)
            item, self._waiting = self._waiting, []
            return item or None
