"""New items: those that an arrival completes, by the keys of their rows."""

from dataclasses import dataclass

import numpy as np

from mycelia_core.config import WindowConfig
from mycelia_replay.arrays import Bools, Ints
from mycelia_replay.arrival import Arrival
from mycelia_replay.streams import Streams
from mycelia_replay.windows import completed_items


@dataclass(frozen=True, slots=True)
class NewItems:
    """New items, n of them, oldest first."""

    keys: Ints
    """[n]"""

    row_counts: Ints
    """[n]"""

    burn_in_counts: Ints
    """[n]"""

    start_keys: Ints
    """[n] of the rows where they start, burn-in included."""

    def only(self, which: Bools | Ints) -> "NewItems":
        """Returns some of them."""
        return NewItems(
            keys=self.keys[which],
            row_counts=self.row_counts[which],
            burn_in_counts=self.burn_in_counts[which],
            start_keys=self.start_keys[which],
        )


def find_new_items(
    streams: Streams, arrival: Arrival, first_key: int, oldest_key: int, window: WindowConfig
) -> NewItems:
    """Finds the items that an arrival completes.

    Args:
      streams: before the arrival is committed.
      arrival: the new rows.
      first_key: the key that the first of them gets.
      oldest_key: of the rows still there once they are stored; an item that
        needs an older one is left out.
      window: what an item is made of.
    """
    found = completed_items(arrival, streams.last_positions(arrival), window)

    def ancestors(back: Ints) -> Ints:
        return streams.ancestors(
            arrival, first_key, found.segments, found.offsets, found.back + back
        )

    burn_in_counts = np.zeros_like(found.back)
    keys = start_keys = reach = ancestors(burn_in_counts)
    if window.burn_in_rows:
        burn_in_counts = np.minimum(found.positions, window.burn_in_rows)
        start_keys = reach = ancestors(burn_in_counts)
    if window.context_rows:
        reach = ancestors(np.minimum(found.positions, window.lead_rows))
    items = NewItems(keys, found.back + 1, burn_in_counts, start_keys)
    alive = (reach >= oldest_key).nonzero()[0]
    return items.only(alive[np.argsort(keys[alive])])
