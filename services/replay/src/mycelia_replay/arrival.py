"""An arrival: the new rows of a request, placed in their streams."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mycelia_replay.arrays import Bools, Ints
from mycelia_replay.rows import Segment


@dataclass(frozen=True, slots=True)
class Arrival:
    """The new rows of one request, placed in their streams. S segments, R new rows.

    A fragment is a run of connected rows: an episode, or what is left of one
    between gaps. Links, windows and context stay inside a fragment.
    """

    segments: Sequence[Segment]
    """The S segments that have new rows."""

    streams: Ints
    """[S] index of each segment's stream; 0 for streams not seen before."""

    kept: Ints | None
    """[R] which rows of the request are new; None for all."""

    starts: Ints
    """[S] where among the new rows each segment's begin."""

    counts: Ints
    """[S] how many new rows each segment has."""

    segment_of: Ints
    """[R] each row's segment."""

    offsets: Ints
    """[R] each row's place in its segment, from 0."""

    positions: Ints
    """[R] each row's place in its fragment, from 0."""

    begins: Bools
    """[R] whether the row is the first of its fragment."""

    ended: Bools
    """[R] whether the row is the last of its episode."""

    cut: Ints
    """The segments before whose first row a gap cut an episode that was going on."""

    new_count: int
    duplicate_count: int
    missing_count: int


def without_first(counts: Ints, skipped: Ints) -> Ints:
    """Returns the rows left when the first `skipped` [S] of each segment's `counts` are dropped."""
    starts = np.cumsum(counts) - counts
    offsets = np.arange(int(counts.sum())) - np.repeat(starts, counts)
    kept: Ints = (offsets >= np.repeat(skipped, counts)).nonzero()[0]
    return kept
