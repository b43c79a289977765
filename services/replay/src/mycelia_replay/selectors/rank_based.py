"""Picks items by the rank of their priorities, which outliers cannot disturb.

Schaul et al. 2016, section 3.3 (https://arxiv.org/abs/1511.05952):

    P(i) = rank(i)^-alpha / sum_k rank(k)^-alpha

The highest priority has rank 1; among equal ones, the one set first comes first.
"""

import numpy as np

from mycelia_replay.arrays import Bools, Floats, Ints
from mycelia_replay.max_tree import MaxTree
from mycelia_replay.state import State

_NO_SLOTS: Ints = np.empty(0, np.int64)


class RankBased:
    """A `Selector`. Draws are independent of one another, with replacement.

    Ranks are exact: changes are merged into the sorted order before the next
    draw, which moves every entry once. Items of priority 0 have no rank.
    """

    def __init__(self, capacity: int, exponent: float) -> None:
        """Prepares for slots in `[0, capacity)`.

        Args:
          capacity: how many slots there are.
          exponent: alpha; 0 draws all items of priority above 0 alike.
        """
        self._tree = MaxTree(capacity)
        # Priorities are sorted by their negatives, so that they ascend.
        self._order = _NO_SLOTS
        self._keys: Floats = np.empty(0)
        self._changed = np.zeros(capacity, np.bool_)
        self._waiting: list[Ints] = []
        self._waiting_count = 0
        self._cumulated = np.cumsum(np.arange(1, capacity + 1, dtype=np.float64) ** -exponent)

    def add(self, slots: Ints, priorities: Floats) -> None:
        """Takes new items in; see `Selector.add`."""
        unknown = np.isnan(priorities)
        if unknown.any():
            priorities = np.where(unknown, self.default_priority, priorities)
        self.update(slots, priorities)

    def update(self, slots: Ints, priorities: Floats) -> None:
        """Sets the priorities [n] of living items at `slots` [n]; the last one wins."""
        self._tree.set(slots, priorities)
        self._waiting.append(slots)
        self._waiting_count += len(slots)
        if self._waiting_count > len(self._changed):
            self._merge()

    def remove(self, slots: Ints) -> None:
        """Forgets the items at `slots` [n]."""
        self.update(slots, np.zeros(len(slots)))

    def draw(self, generator: np.random.Generator, count: int) -> tuple[Ints, Floats]:
        """Draws `count` slots by the rank of their priorities."""
        total = self.total
        masses = np.minimum(generator.random(count) * total, np.nextafter(total, 0.0))
        ranks = np.searchsorted(self._cumulated[: len(self._order)], masses, side="right")
        shares = self._cumulated[ranks] - np.where(ranks > 0, self._cumulated[ranks - 1], 0.0)
        return self._order[ranks], shares / total

    def can_draw(self, count: int) -> bool:
        """Tells whether any priority is above 0."""
        return self._tree.largest > 0

    def drawable(self, slots: Ints) -> Bools:
        """Tells which of `slots` [n] have a priority above 0."""
        return self._tree[slots] > 0

    @property
    def default_priority(self) -> float:
        """The largest priority among the items; 1 if there is none above 0."""
        return self._tree.largest or 1.0

    @property
    def total(self) -> float:
        """The sum of rank^-exponent over the items of priority above 0."""
        self._merge()
        return float(self._cumulated[len(self._order) - 1]) if len(self._order) else 0.0

    def state(self) -> State:
        """Copies priorities and order."""
        self._merge()
        return State.of({"order": self._order}).joined(priorities=self._tree.state())

    def load_state(self, state: State) -> None:
        """Takes over what `state` returned."""
        self._tree.load_state(state.part("priorities"))
        self._order = state.array("order").astype(np.int64)
        self._keys = -self._tree[self._order]
        self._waiting, self._waiting_count = [], 0

    @property
    def nbytes(self) -> int:
        """Bytes reserved."""
        arrays = (self._order, self._keys, self._changed, self._cumulated)
        return self._tree.nbytes + sum(array.nbytes for array in arrays)

    def _merge(self) -> None:
        """Puts the items whose priorities have changed where they belong now."""
        if not self._waiting:
            return
        slots = _last_of_each(np.concatenate(self._waiting))
        self._waiting, self._waiting_count = [], 0
        self._changed[slots] = True
        kept = ~self._changed[self._order]
        order, keys = self._order[kept], self._keys[kept]
        self._changed[slots] = False
        slots = slots[self._tree[slots] > 0]
        new_keys = -self._tree[slots]
        sorted_new = np.argsort(new_keys, kind="stable")
        slots, new_keys = slots[sorted_new], new_keys[sorted_new]
        places = np.searchsorted(keys, new_keys, side="right")
        self._order = np.insert(order, places, slots)
        self._keys = np.insert(keys, places, new_keys)


def _last_of_each(slots: Ints) -> Ints:
    """Returns each slot once, in the order in which they come last."""
    _, places = np.unique(slots[::-1], return_index=True)
    last: Ints = slots[len(slots) - 1 - np.sort(places)[::-1]]
    return last
