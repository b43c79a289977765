"""A table: rows in a ring, the items made of them, a selector and a rate limiter."""

import math
from collections.abc import Mapping
from dataclasses import asdict

import numpy as np

from mycelia_core.config import TableConfig, WindowConfig
from mycelia_core.rpc.errors import InvalidArgumentError
from mycelia_core.specs import FIRST, TERMINATED, TRUNCATED, Signature
from mycelia_replay.arrays import AnyArray, Bools, Floats, Ints
from mycelia_replay.arrival import Arrival
from mycelia_replay.columns.column import Allocate
from mycelia_replay.draw_figures import DrawFigures
from mycelia_replay.item_columns import ItemColumns
from mycelia_replay.item_keys import ItemKeys
from mycelia_replay.items import Items
from mycelia_replay.new_items import NewItems, find_new_items
from mycelia_replay.rate_limiter import RateLimiter
from mycelia_replay.ring import Ring
from mycelia_replay.row_hold import RowHold
from mycelia_replay.rows import Rows
from mycelia_replay.state import State
from mycelia_replay.streams import Streams
from mycelia_replay.table_results import Counters, Inserted, Sampled


class Table:
    """Stores rows, makes items of them, hands items out. One owner; not thread-safe.

    It never waits: the caller asks `limiter` first. An item's key is the key of
    the row it begins at, so that keys are never reused.
    """

    def __init__(
        self,
        config: TableConfig,
        signature: Signature,
        seed: np.random.SeedSequence,
        *,
        made_on_request: bool = False,
    ) -> None:
        """Reserves all memory.

        Raises:
          ValueError: the settings contradict one another.
        """
        self.config = config
        self.name = config.name
        self.signature = signature
        self.made_on_request = made_on_request
        """Whether no config has it."""
        self.window = _checked_window(config)
        self.counters = Counters()
        self.draws = DrawFigures()
        self._item_keys = ItemKeys()
        self.limiter = RateLimiter(
            samples_per_insert=config.samples_per_insert,
            min_items_to_sample=config.min_items_to_sample,
            error_buffer=config.error_buffer,
            max_items=config.most_items,
            max_unread_items=config.max_items if config.inserts_wait_for_room else 0,
        )
        capacity = config.capacity_rows
        self._generator = np.random.default_rng(seed)
        self._items = Items(config)
        self._item_columns = ItemColumns(signature.item_columns, capacity, self.window)
        self._ring = Ring(signature, capacity)
        self._streams = Streams(self.window.rows - 1 + self.window.lead_rows)
        self._initial_priorities = np.zeros(capacity)

    @property
    def largest_batch(self) -> float:
        """The largest batch that can be drawn at once whatever the inserts' sizes."""
        most_items = self.config.most_items
        if self.config.sampler in ("fifo", "lifo", "max_heap"):
            return min(self.limiter.largest_batch, most_items)
        return min(
            self.limiter.largest_batch, most_items * (self.config.max_times_sampled or math.inf)
        )

    @property
    def item_count(self) -> int:
        """Items that can be sampled."""
        return len(self._items)

    @property
    def row_count(self) -> int:
        """Rows held."""
        return len(self._ring)

    @property
    def total_priority(self) -> float:
        """The sum of the items' priorities, after the exponent."""
        return self._items.total_priority

    @property
    def nbytes(self) -> int:
        """Bytes reserved for rows, links and priorities."""
        items = self._items.nbytes + self._item_columns.nbytes
        return self._ring.nbytes + items + self._initial_priorities.nbytes

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
        return self._items.can_draw(batch_size)

    def overwrites_items(self, row_count: int) -> bool:
        """Tells whether items would leave because `row_count` more rows are stored."""
        return bool(len(self._items_over(self._ring.slots_to_overwrite(row_count))))

    def sample(self, batch_size: int, allocate: Allocate = np.empty) -> Sampled:
        """Draws a batch. Only when `can_draw(batch_size)`.

        Args:
          batch_size: B.
          allocate: makes the arrays that dense columns are gathered in.
        """
        item_count, total = self.item_count, self.total_priority
        slots, probabilities = self._items.draw(self._generator, batch_size)
        window = self._ring.window(slots, self.window.rows, self.window.lead_rows)
        burn_in_counts = self._items.burn_in_counts(slots)
        item_columns = {}
        if self._item_columns:
            starts = window[self.window.lead_rows - burn_in_counts, np.arange(batch_size)]
            item_columns = self._item_columns.gather(starts, allocate)
        sampled = Sampled(
            item_keys=self._item_keys.issue(self._ring.keys(slots)),
            probabilities=probabilities,
            row_counts=self._items.row_counts(slots),
            burn_in_counts=burn_in_counts,
            times_sampled=self._items.times_sampled(slots),
            item_count=item_count,
            total_priority=total,
            columns=self._ring.gather(window, allocate),
            item_columns=item_columns,
        )
        self.draws.drawn(self._ring.keys(slots), sampled.times_sampled)
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
        slots, alive = self._find(keys)
        applied = len(slots)
        if applied < len(keys):
            priorities = priorities[alive]
        self._items.update(slots, priorities)
        self.counters.updated_priorities += applied
        self.counters.stale_updates += len(keys) - applied
        return applied, len(keys) - applied

    def delete_items(self, keys: Ints) -> tuple[int, int]:
        """Removes items; their rows stay until they are overwritten.

        Args:
          keys: [n] of items; each counts once.

        Returns:
          how many were removed and how many keys were of items that were gone.
        """
        slots = np.unique(self._find(keys)[0])
        self._items.remove(slots)
        self.counters.deleted_items += len(slots)
        return len(slots), len(keys) - len(slots)

    def reset(self) -> int:
        """Removes every row and item; returns how many rows. Keys and counters go on."""
        self._items.remove(self._items.slots)
        self._item_columns.forget(np.arange(self._ring.capacity))
        return self._ring.clear()

    def state(self) -> State:
        """Copies all but the rows: what an exact continuation needs. Takes milliseconds."""
        return State.of(
            {
                "initial_priorities": self._initial_priorities,
            },
            counters=asdict(self.counters),
            generator=self._generator.bit_generator.state,
        ).joined(
            ring=self._ring.state(),
            streams=self._streams.state(),
            items=self._items.state(),
            item_columns=self._item_columns.state(),
            limiter=self.limiter.state(),
            draws=self.draws.state(),
            item_keys=self._item_keys.state(),
        )

    def load_state(self, state: State) -> None:
        """Takes over what `state` of a table with the same settings returned.

        Raises:
          UnfitStateError: its settings were others; this table is of no use then.
        """
        state.copy_into(initial_priorities=self._initial_priorities)
        self.counters = Counters(**state.scalar("counters"))
        self._generator.bit_generator.state = state.scalar("generator")
        self._ring.load_state(state.part("ring"))
        self._streams.load_state(state.part("streams"))
        self._items.load_state(state.part("items"))
        self._item_columns.load_state(state.part("item_columns"))
        self.limiter.load_state(state.part("limiter"))
        self.draws.load_state(state.part("draws"))
        self._item_keys.load_state(state.part("item_keys"))

    def begin_life(self) -> None:
        """Gives rows from now on other keys than any that were lost in a kill may have had."""
        self._item_keys.begin_life(self._ring.next_key, self._ring.oldest_key())

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

    def _find(self, keys: Ints) -> tuple[Ints, Bools]:
        """Returns the slots of those of `keys` [n] whose items live, and which [n] these are."""
        keys = self._item_keys.resolve(keys)
        slots = keys % self._ring.capacity
        alive = (keys >= self._ring.oldest_key()) & (keys < self._ring.next_key)
        alive &= self._items.are_there(slots)
        return slots[alive], alive

    def _store(self, arrival: Arrival, rows: Rows) -> None:
        first_key, count = self._ring.next_key, arrival.new_count
        self.draws.stored(first_key, self._ring.oldest_key())
        priorities, columns = rows.priorities, rows.columns
        if arrival.kept is not None:
            columns = {name: values[arrival.kept] for name, values in columns.items()}
            priorities = None if priorities is None else priorities[arrival.kept]
        oldest_key = self._ring.oldest_key(count)
        found = find_new_items(self._streams, arrival, first_key, oldest_key, self.window)
        overwritten = self._ring.slots_to_overwrite(count)
        self._items.remove(self._items_over(overwritten))
        self._item_columns.forget(overwritten)
        self._ring.store(arrival, columns, self._streams.last_keys(arrival))
        slots = np.arange(first_key, first_key + count) % self._ring.capacity
        self._initial_priorities[slots] = math.nan if priorities is None else priorities
        self._streams.commit(arrival, first_key)
        if self._item_columns:
            self._store_item_columns(arrival, rows, slots)
            found = self._with_state(found)
        self._make_items(found)

    def _store_item_columns(self, arrival: Arrival, rows: Rows, slots: Ints) -> None:
        """Keeps the item columns of those of the new rows, at `slots`, where an item starts."""
        places = np.full(rows.row_count, -1)
        places[rows.item_rows] = np.arange(len(rows.item_rows))
        if arrival.kept is not None:
            places = places[arrival.kept]
        stored = (places >= 0) & self._item_columns.starts(arrival.positions)
        values = {name: column[places[stored]] for name, column in rows.item_columns.items()}
        self._item_columns.store(slots[stored], values)

    def _with_state(self, found: NewItems) -> NewItems:
        """Returns those of new items whose start came with its item columns."""
        there = self._item_columns.are_there(found.start_keys % self._ring.capacity)
        self.counters.stateless_items += int(np.count_nonzero(~there))
        return found.only(there)

    def _items_over(self, slots: Ints) -> Ints:
        """Returns the slots of the items whose window or context has a row in `slots`."""
        # Later rows of a window are newer than its first, so only items that
        # begin at such a row or up to lead_rows after it can have one.
        found = slots[self._items.are_there(slots)]
        if not self.window.lead_rows:
            return found
        parts = [found]
        for _ in range(self.window.lead_rows):
            slots = self._ring.follow(slots)
            parts.append(slots[self._items.are_there(slots)])
        return np.unique(np.concatenate(parts))

    def _make_items(self, found: NewItems) -> None:
        slots = found.keys % self._ring.capacity
        priorities = self._initial_priorities[slots]
        left = self._items.add(slots, found.row_counts, found.burn_in_counts, priorities)
        self.counters.inserted_items += len(slots)
        self.counters.removed_items += left
        self.limiter.count_insert(len(slots))


def _checked_window(config: TableConfig) -> WindowConfig:
    window = config.window
    if window is None:
        raise ValueError(f"table {config.name!r}: the window is not set")
    if window.rows + window.lead_rows > config.capacity_rows:
        raise ValueError(
            f"table {config.name!r}: a window of {window.rows + window.lead_rows} rows, "
            f"context included, is longer than capacity_rows={config.capacity_rows}"
        )
    return window
