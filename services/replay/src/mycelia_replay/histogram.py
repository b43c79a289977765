"""A histogram: how often values fell into each of some fixed ranges."""

from collections.abc import Sequence

import numpy as np

from mycelia_replay.arrays import AnyArray
from mycelia_replay.state import State


class Histogram:
    """Counts values by range. The table owns it; not thread-safe."""

    def __init__(self, bounds: Sequence[float]) -> None:
        """Starts empty.

        Args:
          bounds: the ranges' upper bounds, ascending, each included; one more range has none.
        """
        self.bounds = np.array(bounds, np.float64)
        self.counts = np.zeros(len(bounds) + 1, np.int64)
        """One more than `bounds`."""
        self.sum = 0.0
        """Of all values."""

    @property
    def mean(self) -> float:
        """The mean of all values; 0 if there are none."""
        return self.sum / max(1, int(self.counts.sum()))

    def add(self, values: AnyArray) -> None:
        """Counts values [n]."""
        ranges = np.searchsorted(self.bounds, values, side="left")
        self.counts += np.bincount(ranges, minlength=len(self.counts))
        self.sum += float(values.sum())

    def state(self) -> State:
        """Copies the counts."""
        return State.of({"counts": self.counts}, sum=self.sum)

    def load_state(self, state: State) -> None:
        """Takes over what `state` returned.

        Raises:
          UnfitStateError: it had other ranges.
        """
        state.copy_into(counts=self.counts)
        self.sum = state.scalar("sum")
