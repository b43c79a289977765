"""What a table asks of a selector."""

from typing import Protocol

import numpy as np

from mycelia_replay.arrays import Bools, Floats, Ints
from mycelia_replay.state import State


class Selector(Protocol):
    """Keeps the slots of living items and picks some. The table owns it; not thread-safe."""

    def add(self, slots: Ints, priorities: Floats) -> None:
        """Takes new items in.

        Args:
          slots: [n] distinct slots without an item, oldest item first.
          priorities: [n] before any exponent; NaN stands for `default_priority`.
        """

    def update(self, slots: Ints, priorities: Floats) -> None:
        """Sets the priorities [n] of living items at `slots` [n]; the last one wins."""

    def remove(self, slots: Ints) -> None:
        """Forgets the items at distinct `slots` [n]."""

    def draw(self, generator: np.random.Generator, count: int) -> tuple[Ints, Floats]:
        """Picks `count` slots; returns them and the probability [count] of each.

        Only when `can_draw(count)`. May pick a slot more than once.
        """

    def can_draw(self, count: int) -> bool:
        """Tells whether `draw(count)` would find something to pick."""

    def drawable(self, slots: Ints) -> Bools:
        """Tells of living items at `slots` [n] which could be picked at all."""

    @property
    def default_priority(self) -> float:
        """What a new item gets whose priority is unknown."""

    @property
    def total(self) -> float:
        """The sum of the items' priorities as the selector weighs them."""

    def state(self) -> State:
        """Copies all that it holds."""

    def load_state(self, state: State) -> None:
        """Takes over what `state` of a selector of the same kind and capacity returned."""

    @property
    def nbytes(self) -> int:
        """Bytes reserved."""
