"""Rates for counters that only grow."""

import time
from collections import deque


class Rate:
    """Events per second over the last few seconds. One thread owns it."""

    def __init__(self, window_seconds: float = 5.0) -> None:
        """Looks back `window_seconds`."""
        self._window = window_seconds
        self._points: deque[tuple[float, float]] = deque()

    def update(self, total: float, now: float | None = None) -> float:
        """Takes the counter's total and returns its rate; 0 at first."""
        now = time.monotonic() if now is None else now
        self._points.append((now, total))
        while len(self._points) > 2 and self._points[0][0] < now - self._window:
            self._points.popleft()
        first_time, first_total = self._points[0]
        return (total - first_total) / (now - first_time) if now > first_time else 0.0
