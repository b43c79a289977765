"""Items: which rows begin one, how often each has been drawn, and which leaves for another.

An item is known by the slot of the row it begins at.
"""

import numpy as np
from numpy.typing import NDArray

from mycelia_core.config import TableConfig
from mycelia_replay.arrays import Bools, Floats, Ints
from mycelia_replay.selectors.choosing import make_remover, make_sampler
from mycelia_replay.state import State


class Items:
    """The living items of a table, which owns them; not thread-safe."""

    def __init__(self, config: TableConfig) -> None:
        """Prepares for items at slots in `[0, capacity_rows)`."""
        capacity = config.capacity_rows
        self._max_times_sampled = config.max_times_sampled
        self._max_items = config.max_items
        self._passes_over_zero = config.sampler in ("prioritized", "rank")
        self._ask_remover = (
            config.sampler in ("uniform", "fifo", "lifo") and config.remover == "lowest_priority"
        )
        self._sampler = make_sampler(config)
        self._remover = make_remover(config)
        self._is_there = np.zeros(capacity, np.bool_)
        self._row_counts = np.zeros(capacity, np.int32)
        self._burn_in_counts = np.zeros(capacity, np.int32)
        self._times_sampled = np.zeros(capacity, np.int32)
        self._draws_left = 0
        self._count = 0

    def __len__(self) -> int:
        """How many there are."""
        return self._count

    @property
    def slots(self) -> Ints:
        """The slots of all, ascending."""
        return self._is_there.nonzero()[0]

    @property
    def total_priority(self) -> float:
        """The sum of their priorities as the sampler weighs them."""
        return self._sampler.total

    @property
    def nbytes(self) -> int:
        """Bytes reserved."""
        arrays = (self._is_there, self._row_counts, self._burn_in_counts, self._times_sampled)
        remover = self._remover.nbytes if self._remover else 0
        return self._sampler.nbytes + remover + sum(array.nbytes for array in arrays)

    def are_there(self, slots: Ints) -> Bools:
        """Tells of `slots` [n] at which there is an item."""
        there: Bools = self._is_there[slots]
        return there

    def row_counts(self, slots: Ints) -> NDArray[np.int32]:
        """Returns how many real rows the items at `slots` [n] have from their first on."""
        counts: NDArray[np.int32] = self._row_counts[slots]
        return counts

    def burn_in_counts(self, slots: Ints) -> NDArray[np.int32]:
        """Returns how many real rows of burn-in the items at `slots` [n] have."""
        counts: NDArray[np.int32] = self._burn_in_counts[slots]
        return counts

    def times_sampled(self, slots: Ints) -> NDArray[np.int32]:
        """Returns how often the items at `slots` [n] have been drawn."""
        times: NDArray[np.int32] = self._times_sampled[slots]
        return times

    def add(self, slots: Ints, row_counts: Ints, burn_in_counts: Ints, priorities: Floats) -> int:
        """Takes new items in, and lets others go if there are more than `max_items` then.

        Args:
          slots: [n] distinct, without an item, the oldest first.
          row_counts: [n] of each.
          burn_in_counts: [n] of each.
          priorities: [n] before the exponent; NaN for the largest of the living items'.

        Returns:
          how many items left; new ones may be among them.
        """
        if not len(slots):
            return 0
        self._is_there[slots] = True
        self._row_counts[slots] = row_counts
        self._burn_in_counts[slots] = burn_in_counts
        self._times_sampled[slots] = 0
        self._count += len(slots)
        self._draws_left += len(slots) * self._max_times_sampled
        unknown = np.isnan(priorities)
        if unknown.any():
            priorities = np.where(unknown, self._default_priority, priorities)
        self._sampler.add(slots, priorities)
        return self._make_room(slots, priorities)

    def remove(self, slots: Ints) -> None:
        """Forgets the items at distinct `slots` [n]."""
        if not len(slots):
            return
        self._is_there[slots] = False
        self._sampler.remove(slots)
        if self._remover:
            self._remover.remove(slots)
        self._count -= len(slots)
        if self._max_times_sampled:
            unused = self._max_times_sampled - self._times_sampled[slots]
            self._draws_left -= int(unused.sum())

    def update(self, slots: Ints, priorities: Floats) -> None:
        """Sets the priorities [n] of the items at `slots` [n]; the last one wins."""
        self._sampler.update(slots, priorities)
        if self._remover:
            self._remover.update(slots, priorities)

    def can_draw(self, count: int) -> bool:
        """Tells whether `draw(count)` would find enough."""
        if not self._sampler.can_draw(count):
            return False
        return not self._max_times_sampled or self._has_draws(count)

    def draw(self, generator: np.random.Generator, count: int) -> tuple[Ints, Floats]:
        """Draws `count` items, and forgets those drawn for the last time.

        Returns:
          their slots [count], and the probability [count] with which each was drawn.
        """
        if self._max_times_sampled:
            return self._draw_limited(generator, count)
        slots, probabilities = self._sampler.draw(generator, count)
        self._count_draws(slots)
        return slots, probabilities

    def state(self) -> State:
        """Copies all that it holds."""
        parts = {"sampler": self._sampler.state()}
        if self._remover:
            parts["remover"] = self._remover.state()
        return State.of(
            {
                "is_there": self._is_there,
                "row_counts": self._row_counts,
                "burn_in_counts": self._burn_in_counts,
                "times_sampled": self._times_sampled,
            },
            count=self._count,
            draws_left=self._draws_left,
        ).joined(**parts)

    def load_state(self, state: State) -> None:
        """Takes over what `state` of items with the same settings returned.

        Raises:
          UnfitStateError: its settings were others.
        """
        state.copy_into(
            is_there=self._is_there,
            row_counts=self._row_counts,
            burn_in_counts=self._burn_in_counts,
            times_sampled=self._times_sampled,
        )
        self._count = state.scalar("count")
        self._draws_left = state.scalar("draws_left")
        self._sampler.load_state(state.part("sampler"))
        if self._remover:
            self._remover.load_state(state.part("remover"))

    @property
    def _default_priority(self) -> float:
        # Samplers that heed no priority know none; the remover may.
        if self._remover and self._ask_remover:
            return self._remover.default_priority
        return self._sampler.default_priority

    def _make_room(self, slots: Ints, priorities: Floats) -> int:
        if not self._remover:
            return 0
        self._remover.add(slots, priorities)
        excess = self._count - self._max_items
        if excess <= 0:
            return 0
        # Removing by rule leaves nothing to chance, so the generator is not used.
        leaving, _ = self._remover.draw(_NO_CHANCE, excess)
        self.remove(leaving)
        return excess

    def _has_draws(self, count: int) -> bool:
        """Tells whether items that can be drawn have so many draws left together."""
        if self._draws_left < count or not self._passes_over_zero:
            return self._draws_left >= count
        slots = self.slots
        slots = slots[self._sampler.drawable(slots)]
        left = self._max_times_sampled * len(slots) - int(self._times_sampled[slots].sum())
        return left >= count

    def _count_draws(self, slots: Ints) -> None:
        np.add.at(self._times_sampled, slots, 1)

    def _draw_limited(self, generator: np.random.Generator, count: int) -> tuple[Ints, Floats]:
        """Draws items, none of them more often than it has draws left."""
        limit = self._max_times_sampled
        slots: Ints = np.empty(0, np.int64)
        probabilities: Floats = np.empty(0)
        while len(slots) < count:
            drawn, probs = self._sampler.draw(generator, count - len(slots))
            fine = _occurrences(drawn) < limit - self._times_sampled[drawn]
            drawn, probs = drawn[fine], probs[fine]
            self._count_draws(drawn)
            self._draws_left -= len(drawn)
            used_up = np.unique(drawn)
            self.remove(used_up[self._times_sampled[used_up] >= limit])
            slots = np.concatenate([slots, drawn])
            probabilities = np.concatenate([probabilities, probs])
        return slots, probabilities


_NO_CHANCE = np.random.default_rng(0)


def _occurrences(values: Ints) -> Ints:
    """Returns, for each value [n], how many equal ones come before it."""
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    starts = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]])
    lengths = np.diff(np.r_[starts, len(values)])
    occurrences = np.empty(len(values), np.int64)
    occurrences[order] = np.arange(len(values)) - np.repeat(starts, lengths)
    return occurrences
