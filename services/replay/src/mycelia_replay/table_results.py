"""What a table returns, and what it counts."""

from dataclasses import dataclass, field

from numpy import float64, int32, int64
from numpy.typing import NDArray

from mycelia_replay.arrays import AnyArray
from mycelia_replay.columns.column import Gathered


@dataclass(frozen=True, slots=True)
class Inserted:
    """What became of the rows of one request."""

    stored_count: int
    duplicate_count: int
    missing_count: int


@dataclass(frozen=True, slots=True)
class Sampled:
    """A batch of B items whose windows, context and burn-in included, are W rows long."""

    item_keys: NDArray[int64]
    """[B]"""

    probabilities: NDArray[float64]
    """[B] with which each was drawn."""

    row_counts: NDArray[int32]
    """[B] real rows, context and burn-in not counted."""

    burn_in_counts: NDArray[int32]
    """[B] real rows of burn-in."""

    times_sampled: NDArray[int32]
    """[B] this time included."""

    item_count: int
    total_priority: float

    columns: dict[str, Gathered]
    """Each [W, B, ...]."""

    item_columns: dict[str, AnyArray] = field(default_factory=dict)
    """Each [B, ...], of the row where an item's burn-in starts."""


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
    deleted_items: int = 0
    """On request."""

    removed_items: int = 0
    """To make room for others; rows that were overwritten are not counted."""

    stateless_items: int = 0
    """Not made, because the row where they start came without its item columns."""
