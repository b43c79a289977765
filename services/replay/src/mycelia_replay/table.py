"""A table: rows in a ring, the items made of them, a selector and a rate limiter."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import NDArray

from mycelia_core.config import TableConfig, WindowConfig
from mycelia_core.rpc.errors import InvalidArgumentError
from mycelia_core.specs import FIRST, TERMINATED, TRUNCATED, Signature
from mycelia_replay.arrays import AnyArray, Floats, Ints
from mycelia_replay.columns.column import Allocate, Gathered
from mycelia_replay.draw_figures import DrawFigures
from mycelia_replay.rate_limiter import RateLimiter
from mycelia_replay.ring import Ring
from mycelia_replay.row_hold import RowHold
from mycelia_replay.rows import Rows
from mycelia_replay.selectors.fifo import Fifo
from mycelia_replay.selectors.prioritized import Prioritized
from mycelia_replay.selectors.selector import Selector
from mycelia_replay.selectors.uniform import Uniform
from mycelia_replay.state import State
from mycelia_replay.streams import Arrival, Streams
from mycelia_replay.windows import completed_items


@dataclass(frozen=True, slots=True)
class Inserted:
    """What became of the rows of one request."""

    stored_count: int
    duplicate_count: int
    missing_count: int


@dataclass(frozen=True, slots=True)
class Sampled:
    """A batch of B items whose windows, context included, are W rows long."""

    item_keys: Ints
    """[B]"""

    probabilities: Floats
    """[B] with which each was drawn."""

    row_counts: NDArray[np.int32]
    """[B] real rows, context not counted."""

    times_sampled: NDArray[np.int32]
    """[B] this time included."""

    item_count: int
    total_priority: float

    columns: dict[str, Gathered]
    """Each [W, B, ...]."""


@dataclass(slots=True)
class Counters:
    """What has happened in a table since it was made."""

    inserted_rows: int = 0
    inserted_items: int = 0
    sampled_items: int = 0
    updated_priorities: int = 0
    stale_updates: int = 0
    duplicate_rows: int = 0
    missing_rows: int = 0
    refused_requests: int = 0


class Table:
    """Stores rows, makes items of them, hands items out. One owner; not thread-safe.

    It never waits: the caller asks `limiter` first. An item's key is the key of
    the row it begins at, so that keys are never reused.
    """

    def __init__(
        self, config: TableConfig, signature: Signature, seed: np.random.SeedSequence
    ) -> None:
        """Reserves all memory.

        Raises:
          ValueError: the settings contradict one another.
        """
        self.config = config
        self.name = config.name
        self.signature = signature
        self.window = _checked_window(config)
        self.counters = Counters()
        self.draws = DrawFigures()
        self.item_count = 0
        self.limiter = RateLimiter(
            samples_per_insert=config.samples_per_insert,
            min_items_to_sample=config.min_items_to_sample,
            error_buffer=config.error_buffer,
            max_items=config.capacity_rows,
        )
        capacity = config.capacity_rows
        self._generator = np.random.default_rng(seed)
        self._selector = _make_selector(config)
        self._ring = Ring(signature, capacity)
        self._streams = Streams(self.window.rows - 1 + self.window.context_rows)
        self._has_item = np.zeros(capacity, np.bool_)
        self._initial_priorities = np.zeros(capacity)
        self._row_counts = np.zeros(capacity, np.int32)
        self._times_sampled = np.zeros(capacity, np.int32)
        self._draws_left = 0

    @property
    def largest_batch(self) -> float:
        """The largest batch that can be drawn at once whatever the inserts' sizes."""
        capacity = self.config.capacity_rows
        if self.config.sampler == "fifo":
            return min(self.limiter.largest_batch, capacity)
        return min(
            self.limiter.largest_batch, capacity * (self.config.max_times_sampled or math.inf)
        )

    @property
    def row_count(self) -> int:
        """Rows held."""
        return len(self._ring)

    @property
    def total_priority(self) -> float:
        """The sum of the items' priorities, after the exponent."""
        return self._selector.total

    @property
    def nbytes(self) -> int:
        """Bytes reserved for rows, links and priorities."""
        arrays = (
            self._has_item,
            self._initial_priorities,
            self._row_counts,
            self._times_sampled,
        )
        return self._ring.nbytes + self._selector.nbytes + sum(a.nbytes for a in arrays)

    @property
    def used_bytes(self) -> int:
        """Bytes of that in use: slots that have been filled."""
        fixed = self.nbytes - self._ring.nbytes
        filled = min(1.0, self._ring.next_key / self._ring.capacity)
        return self._ring.used_bytes + int(fixed * filled) + self._streams.nbytes

    def place(self, rows: Rows) -> Arrival:
        """Finds out which rows are new and where they belong; changes nothing.

        Raises:
          InvalidArgumentError: they contradict their streams, or are more than
            the table can hold.
        """
        if rows.row_count > self._ring.capacity:
            raise InvalidArgumentError(
                f"request: got {rows.row_count} rows, expected at most "
                f"capacity_rows={self._ring.capacity} of table {self.name!r}"
            )
        ended = rows.flags(TERMINATED) | rows.flags(TRUNCATED)
        return self._streams.place(rows.segments, rows.flags(FIRST), ended)

    def insert(self, rows: Rows) -> Inserted:
        """Stores the new ones among the rows and makes the items that they complete.

        Raises:
          InvalidArgumentError: as `place`; then nothing is changed.
        """
        arrival = self.place(rows)
        if arrival.new_count:
            self._store(arrival, rows)
        self.counters.inserted_rows += arrival.new_count
        self.counters.duplicate_rows += arrival.duplicate_count
        self.counters.missing_rows += arrival.missing_count
        return Inserted(arrival.new_count, arrival.duplicate_count, arrival.missing_count)

    def can_draw(self, batch_size: int) -> bool:
        """Tells whether there are items for a batch, the rate limiter aside."""
        if not self._selector.can_draw(batch_size):
            return False
        return not self.config.max_times_sampled or self._has_draws(batch_size)

    def sample(self, batch_size: int, allocate: Allocate = np.empty) -> Sampled:
        """Draws a batch. Only when `can_draw(batch_size)`.

        Args:
          batch_size: B.
          allocate: makes the arrays that dense columns are gathered in.
        """
        item_count, total = self.item_count, self.total_priority
        if self.config.max_times_sampled:
            slots, probabilities = self._draw_limited(batch_size)
        else:
            slots, probabilities = self._selector.draw(self._generator, batch_size)
            self._count_draws(slots)
        window = self._ring.window(slots, self.window.rows, self.window.context_rows)
        sampled = Sampled(
            item_keys=self._ring.keys(slots),
            probabilities=probabilities,
            row_counts=self._row_counts[slots],
            times_sampled=self._times_sampled[slots],
            item_count=item_count,
            total_priority=total,
            columns=self._ring.gather(window, allocate),
        )
        self.draws.drawn(sampled.item_keys, sampled.times_sampled)
        self.counters.sampled_items += batch_size
        self.limiter.count_sample(batch_size)
        return sampled

    def update_priorities(self, keys: Ints, priorities: Floats) -> tuple[int, int]:
        """Sets priorities of living items.

        Args:
          keys: [n] of items; if one comes twice, the last value wins.
          priorities: [n] before the exponent, finite and at least 0.

        Returns:
          how many were applied and how many were of items that are gone.
        """
        slots = keys % self._ring.capacity
        alive = (keys >= self._ring.oldest_key()) & (keys < self._ring.next_key)
        alive &= self._has_item[slots]
        applied = int(np.count_nonzero(alive))
        if applied < len(keys):
            slots, priorities = slots[alive], priorities[alive]
        self._selector.update(slots, priorities)
        self.counters.updated_priorities += applied
        self.counters.stale_updates += len(keys) - applied
        return applied, len(keys) - applied

    def reset(self) -> int:
        """Removes every row and item; returns how many rows. Keys and counters go on."""
        self._remove(self._has_item.nonzero()[0])
        return self._ring.clear()

    def state(self) -> State:
        """Copies all but the rows: what an exact continuation needs. Takes milliseconds."""
        return State.of(
            {
                "has_item": self._has_item,
                "initial_priorities": self._initial_priorities,
                "row_counts": self._row_counts,
                "times_sampled": self._times_sampled,
            },
            item_count=self.item_count,
            draws_left=self._draws_left,
            counters=asdict(self.counters),
            generator=self._generator.bit_generator.state,
        ).joined(
            ring=self._ring.state(),
            streams=self._streams.state(),
            selector=self._selector.state(),
            limiter=self.limiter.state(),
            draws=self.draws.state(),
        )

    def load_state(self, state: State) -> None:
        """Takes over what `state` of a table with the same settings returned.

        Raises:
          UnfitStateError: its settings were others; this table is of no use then.
        """
        state.copy_into(
            has_item=self._has_item,
            initial_priorities=self._initial_priorities,
            row_counts=self._row_counts,
            times_sampled=self._times_sampled,
        )
        self.item_count = state.scalar("item_count")
        self._draws_left = state.scalar("draws_left")
        self.counters = Counters(**state.scalar("counters"))
        self._generator.bit_generator.state = state.scalar("generator")
        self._ring.load_state(state.part("ring"))
        self._streams.load_state(state.part("streams"))
        self._selector.load_state(state.part("selector"))
        self.limiter.load_state(state.part("limiter"))
        self.draws.load_state(state.part("draws"))

    @property
    def oldest_key(self) -> int:
        """The key of the oldest row held."""
        return self._ring.oldest_key()

    def hold_rows(self) -> RowHold:
        """Takes hold of the rows for another thread to read; see `Ring.hold`."""
        return self._ring.hold()

    def let_rows_go(self) -> None:
        """Ends the hold."""
        self._ring.let_go()

    def load_rows(self, first_key: int, columns: Mapping[str, AnyArray], skip: int = 0) -> None:
        """Puts back rows that a hold has read; see `Ring.load_rows`."""
        self._ring.load_rows(first_key, columns, skip)

    def _store(self, arrival: Arrival, rows: Rows) -> None:
        first_key, count = self._ring.next_key, arrival.new_count
        self.draws.stored(first_key, self._ring.oldest_key())
        priorities, columns = rows.priorities, rows.columns
        if arrival.kept is not None:
            columns = {name: values[arrival.kept] for name, values in columns.items()}
            priorities = None if priorities is None else priorities[arrival.kept]
        item_keys, row_counts = self._find_items(arrival, first_key)
        self._remove(self._items_over(self._ring.slots_to_overwrite(count)))
        self._ring.store(arrival, columns, self._streams.last_keys(arrival))
        slots = np.arange(first_key, first_key + count) % self._ring.capacity
        self._initial_priorities[slots] = math.nan if priorities is None else priorities
        self._streams.commit(arrival, first_key)
        self._make_items(item_keys % self._ring.capacity, row_counts)

    def _find_items(self, arrival: Arrival, first_key: int) -> tuple[Ints, Ints]:
        """Returns keys and row counts of the items that an arrival completes, oldest first."""
        last_positions = self._streams.last_positions(arrival)
        found = completed_items(arrival, last_positions, self.window)
        where = (arrival, first_key, found.segments, found.offsets)
        keys = self._streams.ancestors(*where, found.back)
        reach = keys
        if self.window.context_rows:
            context = np.minimum(found.positions, self.window.context_rows)
            reach = self._streams.ancestors(*where, found.back + context)
        alive = reach >= self._ring.oldest_key(arrival.new_count)
        keys, row_counts = keys[alive], found.back[alive] + 1
        order = np.argsort(keys)
        return keys[order], row_counts[order]

    def _items_over(self, slots: Ints) -> Ints:
        """Returns the slots of the items whose window or context has a row in `slots`."""
        # Later rows of a window are newer than its first, so only items that
        # begin at such a row or up to context_rows after it can have one.
        found = slots[self._has_item[slots]]
        if not self.window.context_rows:
            return found
        parts = [found]
        for _ in range(self.window.context_rows):
            slots = self._ring.follow(slots)
            parts.append(slots[self._has_item[slots]])
        return np.unique(np.concatenate(parts))

    def _make_items(self, slots: Ints, row_counts: Ints) -> None:
        if not len(slots):
            return
        self._has_item[slots] = True
        self._row_counts[slots] = row_counts
        self._times_sampled[slots] = 0
        self._selector.add(slots, self._initial_priorities[slots])
        self.item_count += len(slots)
        self._draws_left += len(slots) * self.config.max_times_sampled
        self.counters.inserted_items += len(slots)
        self.limiter.count_insert(len(slots))

    def _remove(self, slots: Ints) -> None:
        if not len(slots):
            return
        self._has_item[slots] = False
        self._selector.remove(slots)
        self.item_count -= len(slots)
        if self.config.max_times_sampled:
            unused = self.config.max_times_sampled - self._times_sampled[slots]
            self._draws_left -= int(unused.sum())

    def _has_draws(self, count: int) -> bool:
        """Tells whether items that can be drawn have so many draws left together."""
        if self._draws_left < count:
            return False
        slots = self._has_item.nonzero()[0]
        slots = slots[self._selector.drawable(slots)]
        left = self.config.max_times_sampled * len(slots) - int(self._times_sampled[slots].sum())
        return left >= count

    def _count_draws(self, slots: Ints) -> None:
        np.add.at(self._times_sampled, slots, 1)

    def _draw_limited(self, batch_size: int) -> tuple[Ints, Floats]:
        """Draws a batch in which no item is drawn more often than it has draws left."""
        limit = self.config.max_times_sampled
        slots: Ints = np.empty(0, np.int64)
        probabilities: Floats = np.empty(0)
        while len(slots) < batch_size:
            drawn, probs = self._selector.draw(self._generator, batch_size - len(slots))
            fine = _occurrences(drawn) < limit - self._times_sampled[drawn]
            drawn, probs = drawn[fine], probs[fine]
            self._count_draws(drawn)
            self._draws_left -= len(drawn)
            used_up = np.unique(drawn)
            self._remove(used_up[self._times_sampled[used_up] >= limit])
            slots = np.concatenate([slots, drawn])
            probabilities = np.concatenate([probabilities, probs])
        return slots, probabilities


def _occurrences(values: Ints) -> Ints:
    """Returns, for each value [n], how many equal ones come before it."""
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    starts = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]])
    lengths = np.diff(np.r_[starts, len(values)])
    occurrences = np.empty(len(values), np.int64)
    occurrences[order] = np.arange(len(values)) - np.repeat(starts, lengths)
    return occurrences


def _checked_window(config: TableConfig) -> WindowConfig:
    window = config.window
    if window is None:
        raise ValueError(f"table {config.name!r}: the window is not set")
    if window.rows + window.context_rows > config.capacity_rows:
        raise ValueError(
            f"table {config.name!r}: a window of {window.rows + window.context_rows} rows, "
            f"context included, is longer than capacity_rows={config.capacity_rows}"
        )
    return window


def _make_selector(config: TableConfig) -> Selector:
    if config.sampler == "prioritized":
        return Prioritized(config.capacity_rows, config.priority_exponent)
    if config.sampler == "uniform":
        return Uniform(config.capacity_rows)
    return Fifo(config.capacity_rows)
