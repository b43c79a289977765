"""Windows: which items the rows that just arrived complete.

With learn_rows=2, bootstrap_rows=1, period=2 and an episode of T=5 actions, row
5 being the final one:

    position   0  1  2  3  4  5
    item 0     l  l  b
    item 2           l  l  b
    item 4                 l  b      shortened: the episode ends

An item is made when its last row arrives. One that begins at position a > 0 is
made only if the item before it did not learn from every action already:
a - period + learn_rows < T. A gap in a stream ends its fragment like an episode's
end: the last row before it serves as the final one.
"""

from dataclasses import dataclass

import numpy as np

from mycelia_core.config import WindowConfig
from mycelia_replay.arrays import Ints
from mycelia_replay.arrival import Arrival


@dataclass(frozen=True, slots=True)
class Completed:
    """Items that an arrival completes, n of them, described from the row that completes each."""

    segments: Ints
    """[n] the segment of the completing row."""

    offsets: Ints
    """[n] its place in the segment; -1 for the row before the segment's first."""

    back: Ints
    """[n] how many rows before it the item begins."""

    positions: Ints
    """[n] where in its fragment the item begins."""


def completed_items(arrival: Arrival, last_positions: Ints, window: WindowConfig) -> Completed:
    """Finds the items that an arrival completes.

    Args:
      arrival: the new rows.
      last_positions: [S] the position of the row before each segment's first.
      window: what an item is made of.
    """
    parts = [_full(arrival, window)]
    if arrival.ended.any():
        rows = arrival.ended.nonzero()[0]
        segments, offsets = arrival.segment_of[rows], arrival.offsets[rows]
        longest = window.rows - 1
        parts.append(_shortened(segments, offsets, arrival.positions[rows], longest, window))
    if len(arrival.cut):
        before = np.full(len(arrival.cut), -1)
        # Those of full length were made when the row before the gap arrived.
        longest = window.rows - 2
        positions = last_positions[arrival.cut]
        parts.append(_shortened(arrival.cut, before, positions, longest, window))
    if len(parts) == 1:
        return parts[0]
    return Completed(
        segments=np.concatenate([part.segments for part in parts]),
        offsets=np.concatenate([part.offsets for part in parts]),
        back=np.concatenate([part.back for part in parts]),
        positions=np.concatenate([part.positions for part in parts]),
    )


def _full(arrival: Arrival, window: WindowConfig) -> Completed:
    """Items of full length that end at a row within an episode."""
    positions = arrival.positions - (window.rows - 1)
    complete = (positions >= 0) & ~arrival.ended
    if window.period > 1:
        complete &= positions % window.period == 0
    rows = complete.nonzero()[0]
    return Completed(
        segments=arrival.segment_of[rows],
        offsets=arrival.offsets[rows],
        back=np.full(len(rows), window.rows - 1),
        positions=positions[rows],
    )


def _shortened(
    segments: Ints, offsets: Ints, ends: Ints, longest: int, window: WindowConfig
) -> Completed:
    """Items that end at a fragment's last row.

    Args:
      segments: [E] of the last rows.
      offsets: [E] of the last rows.
      ends: [E] their positions T: the fragment has T actions that count.
      longest: how far back items may begin.
      window: what an item is made of.
    """
    back = np.arange(longest, 0, -1)[None, :]
    actions = ends[:, None]
    positions = actions - back
    wanted = (positions >= 0) & (positions % window.period == 0)
    wanted &= (positions == 0) | (positions - window.period + window.learn_rows < actions)
    which, column = wanted.nonzero()
    return Completed(
        segments=segments[which],
        offsets=offsets[which],
        back=back[0, column],
        positions=positions[which, column],
    )
