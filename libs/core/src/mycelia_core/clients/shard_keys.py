"""Item keys of several servers in one int64: the shard lies above what a server gives."""

import numpy as np
from numpy.typing import NDArray

SHARD_BIT = 56
"""Servers use the bits below."""

MAX_SHARDS = 1 << 7


def to_sharded(item_keys: NDArray[np.int64], shard: int) -> NDArray[np.int64]:
    """Returns keys [n] of a shard's items that are unique over all shards."""
    return item_keys | np.int64(shard << SHARD_BIT)


def shards_of(item_keys: NDArray[np.int64]) -> NDArray[np.int64]:
    """Returns whose [n] the items are."""
    return item_keys >> np.int64(SHARD_BIT)


def to_local(item_keys: NDArray[np.int64]) -> NDArray[np.int64]:
    """Returns the keys [n] as their servers gave them."""
    return item_keys & np.int64((1 << SHARD_BIT) - 1)
