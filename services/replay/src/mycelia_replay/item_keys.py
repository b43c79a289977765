"""Item keys as callers see them: a row's key, and which life of the table gave it.

A table that is restored after a kill has lost its newest rows, and gives their
keys to other rows. So that a late update for a lost row cannot reach one of
these, keys carry the number of the life in which their row was stored:

    bit   63 .. 56    55 .. 44    43 .. 0
          shard       life        row key         the shard is the client's to add
"""

import secrets

import numpy as np

from mycelia_replay.arrays import Ints
from mycelia_replay.state import State

LIFE_BIT = 44
MAX_LIVES = 1 << 12
_ROW_KEY = (1 << LIFE_BIT) - 1


class ItemKeys:
    """Turns row keys into item keys and back. The table owns it; not thread-safe."""

    def __init__(self) -> None:
        """Begins the first life."""
        self._first_keys = np.zeros(1, np.int64)
        """[L] the first row key of each life that has rows yet."""
        self._lives = np.zeros(1, np.int64)
        """[L] their numbers, at their place."""

    def issue(self, row_keys: Ints) -> Ints:
        """Returns the item keys [n] of rows."""
        item_keys: Ints = row_keys | self._lives_of(row_keys)
        return item_keys

    def resolve(self, item_keys: Ints) -> Ints:
        """Returns the row keys [n]; -1 for rows that are lost."""
        row_keys = item_keys & _ROW_KEY
        known = self._lives_of(row_keys) == item_keys - row_keys
        resolved: Ints = np.where(known & (item_keys >= 0), row_keys, -1)
        return resolved

    def begin_life(self, next_key: int, oldest_key: int) -> None:
        """Begins another life: rows from `next_key` on get keys unlike any before."""
        # By chance: two restores from one checkpoint do not know of each other.
        taken = set((self._lives >> LIFE_BIT).tolist())
        life = secrets.choice([n for n in range(MAX_LIVES) if n not in taken]) << LIFE_BIT
        kept = np.r_[self._first_keys[1:] > oldest_key, True] & (self._first_keys < next_key)
        self._first_keys = np.r_[self._first_keys[kept], next_key]
        self._lives = np.r_[self._lives[kept], life]

    def state(self) -> State:
        """Copies all that it holds."""
        return State.of(
            {}, first_keys=self._first_keys.tolist(), lives=[int(n) for n in self._lives]
        )

    def load_state(self, state: State) -> None:
        """Takes over what `state` returned."""
        self._first_keys = np.array(state.scalar("first_keys"), np.int64)
        self._lives = np.array(state.scalar("lives"), np.int64)

    def _lives_of(self, row_keys: Ints) -> Ints:
        if len(self._lives) == 1:
            return np.broadcast_to(self._lives, row_keys.shape)
        which = np.searchsorted(self._first_keys, row_keys, side="right") - 1
        lives: Ints = self._lives[np.maximum(which, 0)]
        return lives
