"""An environment that fails once, for worker processes to import."""

import ctypes
import time
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces


class FailingEnv(gymnasium.Env[Any, Any]):
    """Episodes of 4 steps; shows its seed, the episode's number and the step's.

    With seed 1 it fails in the third step of its second episode, unless `marker` is there.
    """

    observation_space = spaces.Box(0, 2**40, (3,), np.int64)
    action_space = spaces.Discrete(3)

    def __init__(self, how: str, marker: str) -> None:
        self._how, self._marker = how, Path(marker)
        self._seed, self._episode, self._t = 0, -1, 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        self._seed = self._seed if seed is None else seed
        self._episode, self._t = self._episode + 1, 0
        return self._observe(), {}

    def step(self, action: Any) -> Any:
        if (self._seed, self._episode, self._t) == (1, 1, 2) and not self._marker.exists():
            self._marker.touch()
            self._fail()
        self._t += 1
        return self._observe(), float(self._t), self._t == 4, False, {}

    def _observe(self) -> np.ndarray:
        return np.array([self._seed, self._episode, self._t])

    def _fail(self) -> None:
        if self._how == "raise":
            raise RuntimeError("the emulator lost its mind")
        if self._how == "hang":
            time.sleep(3600)
        ctypes.string_at(0)
