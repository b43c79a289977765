"""Tables and rows for tests of the table's parts."""

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from mycelia_core.config import TableConfig, WindowConfig
from mycelia_core.specs import ColumnSpec, Signature
from mycelia_replay.rows import Rows, Segment
from mycelia_replay.table import Table

SIGNATURE = Signature.of([ColumnSpec("observation", np.dtype(np.int64))])


class TableDriver:
    """A table whose rows are written as `(observation, flags)`, flags of the letters f, t, c."""

    def __init__(self, config: TableConfig) -> None:
        self.table = Table(config, SIGNATURE, np.random.SeedSequence(1))
        self._next_rows: dict[str, int] = {}

    def insert(
        self,
        stream: str,
        rows: Sequence[tuple[int, str]],
        *,
        start_row: int | None = None,
        rewards: Sequence[float] | None = None,
        priorities: Sequence[float] | None = None,
    ):
        start = self._next_rows.get(stream, 0) if start_row is None else start_row
        self._next_rows[stream] = start + len(rows)
        segment = Segment(stream, start, len(rows))
        return self.table.insert(make_rows([segment], rows, rewards, priorities))

    def episode(self, stream: str, action_count: int, *, first: int = 0, end: str = "t", **more):
        """Inserts a whole episode whose observations count up from `first`."""
        flags = ["f", *[""] * (action_count - 1), end]
        return self.insert(stream, [(first + i, f) for i, f in enumerate(flags)], **more)

    def items(self) -> dict[int, tuple[list[int], int]]:
        """Every item: its observations, context included, and its number of real rows."""
        slots = self.table._items.slots
        window = self.table.window
        gathered = self.table._ring.window(slots, window.rows, window.lead_rows)
        observations = self.table._ring.gather(gathered)["observation"]
        keys, counts = self.table._ring.keys(slots), self.table._items.row_counts(slots)
        return {
            int(key): (observations[:, i].tolist(), int(counts[i])) for i, key in enumerate(keys)
        }


def make_rows(
    segments: Sequence[Segment],
    rows: Sequence[tuple[int, str]],
    rewards: Sequence[float] | None = None,
    priorities: Sequence[float] | None = None,
) -> Rows:
    flags = [flag for _, flag in rows]
    columns = {
        "observation": np.array([observation for observation, _ in rows], np.int64),
        "reward": np.array(np.zeros(len(rows)) if rewards is None else rewards, np.float32),
        "first": np.array(["f" in flag for flag in flags], np.bool_),
        "terminated": np.array(["t" in flag for flag in flags], np.bool_),
        "truncated": np.array(["c" in flag for flag in flags], np.bool_),
    }
    known = None if priorities is None else np.asarray(priorities, np.float64)
    return Rows(list(segments), columns, known, len(rows))


@pytest.fixture
def make_driver() -> Callable[..., TableDriver]:
    """Makes tables; keywords of `WindowConfig` go to the window, others to the table."""

    def make(**settings) -> TableDriver:
        of_window = {k: settings.pop(k) for k in list(settings) if k in WindowConfig.model_fields}
        return TableDriver(TableConfig(**settings, window=WindowConfig(**of_window)))

    return make


@pytest.fixture
def rows_of() -> Callable[..., Rows]:
    """Makes `Rows` of segments and `(observation, flags)` pairs."""
    return make_rows
