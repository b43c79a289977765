"""What the tests of the actor share: an environment that can be foretold, and a list for rows."""

import itertools
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces


class CountingEnv(gymnasium.Env[Any, Any]):
    """Episodes of 1, 3 and 4 steps in turn, ending by turns in termination and truncation.

    The observation is `offset + 1000 * episode + step`, the reward of a step its number.
    """

    lengths = (1, 3, 4)
    observation_space = spaces.Box(-1, 1e9, (1,), np.float32)
    action_space = spaces.Discrete(5)

    def __init__(self, offset: float = 0.0, reuses_buffer: bool = False) -> None:
        self._offset = offset
        self._episode = -1
        self._step = 0
        self._buffer = np.zeros(1, np.float32)
        self._reuses_buffer = reuses_buffer

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self._episode += 1
        self._step = 0
        return self._observe(), {}

    def step(self, action: Any) -> Any:
        self._step += 1
        ends = self._step == self.lengths[self._episode % 3]
        terminates = self._episode % 2 == 0
        return self._observe(), float(self._step), ends and terminates, ends and not terminates, {}

    def _observe(self) -> np.ndarray:
        self._buffer[0] = self._offset + 1000 * self._episode + self._step
        return self._buffer if self._reuses_buffer else self._buffer.copy()


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
                    float(row["observation"].reshape(-1)[0]),
                    float(row["reward"]),
                    float(after["observation"].reshape(-1)[0]),
                    bool(after["terminated"]),
                    bool(after["truncated"]),
                    int(row["action"]),
                    bool(row["first"]),
                )
            )
        return found


@pytest.fixture
def counting_env():
    return CountingEnv


@pytest.fixture
def row_list():
    return RowList()


@pytest.fixture(autouse=True)
def _own_modules(monkeypatch):
    """Lets environments be found by name in the folder of these tests."""
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
