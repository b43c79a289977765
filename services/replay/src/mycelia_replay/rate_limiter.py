"""The rate limiter: holds how often items are sampled near what was asked for.

    d = inserted items * samples_per_insert - sampled items

    inserts wait while  d > min_items * samples_per_insert + error_buffer
    samples wait while  d - batch size < min_items * samples_per_insert - error_buffer
                 or while the table has fewer than min_items items

One exception keeps both sides from waiting for each other: with fewer than
min_items items no sample can go on, so inserts never wait then.
"""

import math
from dataclasses import astuple, dataclass

from mycelia_replay.state import State


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """What the other shards of a table have counted: the ratio is held over all of them."""

    inserted: int = 0
    sampled: int = 0
    min_items: int = 0
    """The sum of theirs."""


class RateLimiter:
    """Decides who may go on. Counts nothing itself but items in and out; not thread-safe."""

    def __init__(
        self,
        *,
        samples_per_insert: float,
        min_items_to_sample: int,
        error_buffer: float,
        max_items: int,
        max_unread_items: int = 0,
    ) -> None:
        """Checks the settings; see `TableConfig` for what they mean.

        Args:
          samples_per_insert: how often each item is to be sampled; 0 for no limit.
          min_items_to_sample: items that must be there before a sample.
          error_buffer: how many samples either side may be ahead.
          max_items: the most items the table could ever hold.
          max_unread_items: inserts wait while there are so many items; 0 for no limit.

        Raises:
          ValueError: with these settings somebody would wait for ever.
        """
        if not (math.isfinite(samples_per_insert) and samples_per_insert >= 0):
            raise ValueError(f"samples_per_insert must be in [0, inf), got {samples_per_insert}")
        if not 1 <= min_items_to_sample <= max_items:
            raise ValueError(
                f"min_items_to_sample must be in [1, {max_items}], the most items that the table "
                f"can hold, got {min_items_to_sample}: no sample could ever be drawn"
            )
        if samples_per_insert and not error_buffer >= max(1.0, samples_per_insert):
            raise ValueError(
                f"error_buffer={error_buffer} is below one insert's worth of samples "
                f"({max(1.0, samples_per_insert)}): inserts and samples would wait for each other"
            )
        self.samples_per_insert = samples_per_insert
        self.min_items = min_items_to_sample
        self.error_buffer = error_buffer
        self.max_unread_items = max_unread_items
        self._inserted = 0
        self._sampled = 0
        self._elsewhere = Elsewhere()

    @property
    def difference(self) -> float:
        """d: how many samples are still owed to the items inserted so far."""
        return self._all_inserted * self.samples_per_insert - self._all_sampled

    @property
    def largest_batch(self) -> float:
        """The largest batch that is let through whatever the inserts' sizes."""
        if self.samples_per_insert:
            return 2 * self.error_buffer
        return self.max_unread_items or math.inf

    def admits_insert(self, item_count: int) -> bool:
        """Tells whether an insert may go on while the table holds `item_count` items."""
        if self.max_unread_items:
            return item_count < self.max_unread_items
        return (
            not self.samples_per_insert
            or self.difference <= self._set_point + self.error_buffer
            or item_count < self.min_items
        )

    def admits_sample(self, batch_size: int, item_count: int) -> bool:
        """Tells whether `batch_size` samples may go on while there are `item_count` items."""
        if item_count < self.min_items:
            return False
        owed = self.difference - batch_size
        return not self.samples_per_insert or owed >= self._set_point - self.error_buffer

    def count_insert(self, item_count: int) -> None:
        """Takes note of items that were made."""
        self._inserted += item_count

    def count_sample(self, item_count: int) -> None:
        """Takes note of items that were sampled."""
        self._sampled += item_count

    @property
    def counts(self) -> tuple[int, int]:
        """Items inserted and sampled here."""
        return self._inserted, self._sampled

    def tell(self, elsewhere: Elsewhere) -> None:
        """Takes note of what other shards have counted, in place of what was told before."""
        self._elsewhere = elsewhere

    def state(self) -> State:
        """Returns what it has counted."""
        return State.of(
            inserted=self._inserted, sampled=self._sampled, elsewhere=astuple(self._elsewhere)
        )

    def load_state(self, state: State) -> None:
        """Takes over what `state` returned."""
        self._inserted, self._sampled = state.scalar("inserted"), state.scalar("sampled")
        self._elsewhere = Elsewhere(*state.scalar("elsewhere"))

    def explain_insert(self) -> str:
        """Says what an insert waits for, with the numbers."""
        if self.max_unread_items:
            return f"room: inserts wait while max_items={self.max_unread_items} items are unread"
        return (
            f"samples: {self._state}, inserts wait while d is above "
            f"{self._set_point + self.error_buffer:g}"
        )

    def explain_sample(self, batch_size: int, item_count: int) -> str:
        """Says what a sample waits for, with the numbers."""
        if item_count < self.min_items:
            return f"items: {item_count} of min_items_to_sample={self.min_items} are there"
        return (
            f"inserts: {self._state}, a batch of {batch_size} waits while d is below "
            f"{self._set_point - self.error_buffer + batch_size:g}"
        )

    @property
    def _set_point(self) -> float:
        return (self.min_items + self._elsewhere.min_items) * self.samples_per_insert

    @property
    def _all_inserted(self) -> int:
        return self._inserted + self._elsewhere.inserted

    @property
    def _all_sampled(self) -> int:
        return self._sampled + self._elsewhere.sampled

    @property
    def _state(self) -> str:
        return (
            f"d={self.difference:g} of inserted={self._all_inserted} * "
            f"samples_per_insert={self.samples_per_insert:g} - sampled={self._all_sampled}"
        )
