"""What the tests of the actor share: an environment that can be foretold, and a list for rows."""

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest


class RowList:
    """A sink that keeps the rows of each stream, and what priority each had."""

    def __init__(self) -> None:
        self.streams: dict[int, list[dict[str, Any]]] = {}

    def append(self, columns, *, streams=None, priorities=None):
        count = len(columns["reward"])
        slots = range(count) if streams is None else streams.tolist()
        for row, slot in enumerate(slots):
            values = {name: column[row].copy() for name, column in columns.items()}
            values["priority"] = None if priorities is None else float(priorities[row])
            self.streams.setdefault(slot, []).append(values)

    def transitions(self, stream: int) -> list[tuple[float, float, float, bool, bool, int, bool]]:
        """Returns (observation, reward, next observation, terminated, truncated, action, first)."""
        found = []
        rows = self.streams[stream]
        for row, after in itertools.pairwise(rows):
            if row["terminated"] or row["truncated"]:
                continue
            found.append(
                (
                    _number(row["observation"]),
                    float(row["reward"]),
                    _number(after["observation"]),
                    bool(after["terminated"]),
                    bool(after["truncated"]),
                    int(row["action"]),
                    bool(row["first"]),
                )
            )
        return found


def _number(observation: np.ndarray) -> float:
    """Returns the number that is shown, as it is or in the four bytes of a screen."""
    is_screen = observation.dtype == np.uint8
    shown = observation.reshape(-1)
    return float(shown.view(">u4")[0] if is_screen else shown[0])


@pytest.fixture
def counting_env():
    from counting_env import CountingEnv

    return CountingEnv


@pytest.fixture
def row_list():
    return RowList()


@pytest.fixture(autouse=True)
def _own_modules(monkeypatch):
    """Lets environments be found by name in the folder of these tests."""
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
