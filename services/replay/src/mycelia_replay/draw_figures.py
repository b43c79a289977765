"""What is drawn from a table: how often items had been sampled, and how old they were."""

import time
from collections.abc import Callable

import numpy as np

from mycelia_replay.arrays import AnyArray, Floats, Ints
from mycelia_replay.histogram import Histogram
from mycelia_replay.state import State

TIMES_BOUNDS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64, 128, 256)
AGE_BOUNDS = (0.1, 0.3, 1, 3, 10, 30, 100, 300, 1_000, 3_000, 10_000, 30_000)
"""In seconds."""

MARK_SECONDS = 0.1
"""How exact ages are, at best."""

MAX_MARKS = 4096


class DrawFigures:
    """Two histograms over all draws. The table owns it; not thread-safe.

    When a row came is not stored with it: marks of keys and times are, few enough
    to be bounded. If there are too many, every second one goes.
    """

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        """Starts empty; `clock` returns seconds, also comparable after a restart."""
        self.times_sampled = Histogram(TIMES_BOUNDS)
        self.age_seconds = Histogram(AGE_BOUNDS)
        self._clock = clock
        self._mark_keys = np.zeros(MAX_MARKS, np.int64)
        self._mark_times = np.zeros(MAX_MARKS)
        self._count = 0

    def stored(self, first_key: int, oldest_key: int) -> None:
        """Takes note that rows from `first_key` on come now; those before `oldest_key` are gone."""
        now = self._clock()
        if self._count and now < self._mark_times[self._count - 1] + MARK_SECONDS:
            return
        if self._count == MAX_MARKS:
            self._thin_out(oldest_key)
        self._mark_keys[self._count] = first_key
        self._mark_times[self._count] = now
        self._count += 1

    def drawn(self, keys: Ints, times_sampled: AnyArray) -> None:
        """Takes note of a draw: the items' keys [n], and their draws so far [n]."""
        self.times_sampled.add(times_sampled)
        self.age_seconds.add(self.ages(keys))

    def ages(self, keys: Ints) -> Floats:
        """Returns how long [n] rows have been there, in seconds."""
        marks = np.searchsorted(self._mark_keys[: self._count], keys, side="right") - 1
        ages: Floats = np.maximum(0.0, self._clock() - self._mark_times[np.maximum(marks, 0)])
        return ages

    def state(self) -> State:
        """Copies all that it holds."""
        marks = {
            "mark_keys": self._mark_keys[: self._count],
            "mark_times": self._mark_times[: self._count],
        }
        return State.of(marks).joined(
            times_sampled=self.times_sampled.state(), age_seconds=self.age_seconds.state()
        )

    def load_state(self, state: State) -> None:
        """Takes over what `state` returned."""
        self._count = len(state.array("mark_keys"))
        state.copy_into(
            mark_keys=self._mark_keys[: self._count], mark_times=self._mark_times[: self._count]
        )
        self.times_sampled.load_state(state.part("times_sampled"))
        self.age_seconds.load_state(state.part("age_seconds"))

    def _thin_out(self, oldest_key: int) -> None:
        # The last mark before the oldest row tells when that one came.
        start = max(0, int(np.searchsorted(self._mark_keys, oldest_key, side="right")) - 1)
        step = 2 if start < MAX_MARKS // 2 else 1
        keys, times = self._mark_keys[start::step].copy(), self._mark_times[start::step].copy()
        self._count = len(keys)
        self._mark_keys[: self._count], self._mark_times[: self._count] = keys, times
