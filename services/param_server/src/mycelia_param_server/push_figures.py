"""What became of the pushes and rounds of a run: counts, and histograms of staleness and time."""

import bisect
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Self

STALENESS_BOUNDS = (0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
"""The upper bound of each bucket but the last, which has none. In versions."""

ROUND_BOUNDS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)
"""The same for how long rounds are open. In seconds."""


class Buckets:
    """Counts values by range, and keeps their sum and their maximum."""

    def __init__(self, bounds: Sequence[float]) -> None:
        """Starts empty.

        Args:
          bounds: the ranges' upper bounds, rising, each included; one more range has none.
        """
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(bounds) + 1)
        """One more than `bounds`."""
        self.sum = 0.0
        self.max = 0.0

    def add(self, value: float) -> None:
        """Counts a value of 0 or more."""
        self.counts[bisect.bisect_left(self.bounds, value)] += 1
        self.sum += value
        self.max = max(self.max, value)

    def state(self) -> dict[str, Any]:
        """Returns all but the bounds, for a checkpoint."""
        return {"counts": list(self.counts), "sum": self.sum, "max": self.max}

    def load(self, state: Mapping[str, Any]) -> None:
        """Takes over what `state` returned.

        Raises:
          ValueError: it had another number of ranges.
        """
        counts = [int(count) for count in state["counts"]]
        if len(counts) != len(self.counts):
            raise ValueError(f"a histogram of {len(counts)} ranges, expected {len(self.counts)}")
        self.counts, self.sum, self.max = counts, float(state["sum"]), float(state["max"])


class PushFigures:
    """Counts pushes and rounds. One event loop owns it."""

    def __init__(self) -> None:
        """Starts at 0."""
        self.counts: Counter[str] = Counter()
        """Pushes by outcome, or by what was wrong."""
        self.staleness = Buckets(STALENESS_BOUNDS)
        """How far back pushes were computed, in versions."""
        self.scaled = 0
        """Pushes whose step was made smaller because of their staleness."""
        self.rounds = Buckets(ROUND_BOUNDS)
        """How long rounds were open, in seconds."""
        self.stragglers = 0
        """How many gradients rounds closed without."""

    @classmethod
    def restored(cls, state: Mapping[str, Any]) -> Self:
        """Returns figures that go on where saved ones left off.

        Raises:
          KeyError, TypeError, ValueError: `state` did not return this.
        """
        figures = cls()
        figures.counts.update(state["push_counts"])
        figures.staleness.load(state["staleness"])
        figures.scaled = int(state["scaled"])
        figures.rounds.load(state["rounds"])
        figures.stragglers = int(state["stragglers"])
        return figures

    def state(self) -> dict[str, Any]:
        """Returns all of it, for a checkpoint."""
        return {
            "push_counts": dict(self.counts),
            "staleness": self.staleness.state(),
            "scaled": self.scaled,
            "rounds": self.rounds.state(),
            "stragglers": self.stragglers,
        }

    def count(self, what: str) -> None:
        """Counts one push."""
        self.counts[what] += 1

    def observe_staleness(self, versions: int) -> None:
        """Counts how far back a push was computed."""
        self.staleness.add(versions)

    def observe_round(self, seconds: float, absent: int) -> None:
        """Counts a round that was open for so long, and the gradients it closed without."""
        self.rounds.add(seconds)
        self.stragglers += absent
