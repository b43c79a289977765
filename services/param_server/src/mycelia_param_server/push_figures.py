"""What became of the pushes of a run: counts, and a histogram of their staleness."""

import bisect
from collections import Counter
from collections.abc import Mapping, Sequence

STALENESS_BOUNDS = (0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
"""The upper bound of each bucket but the last, which has none. In versions."""


class PushFigures:
    """Counts pushes. One event loop owns it."""

    def __init__(
        self, counts: Mapping[str, int] | None = None, staleness: Sequence[int] = ()
    ) -> None:
        """Starts at 0, or where saved figures left off."""
        self.counts: Counter[str] = Counter(counts or {})
        """By outcome, or by what was wrong."""
        self.staleness = list(staleness) or [0] * (len(STALENESS_BOUNDS) + 1)
        """How many pushes fell into each bucket."""

    def count(self, what: str) -> None:
        """Counts one push."""
        self.counts[what] += 1

    def observe_staleness(self, versions: int) -> None:
        """Counts how far back a push was computed."""
        self.staleness[bisect.bisect_left(STALENESS_BOUNDS, versions)] += 1
