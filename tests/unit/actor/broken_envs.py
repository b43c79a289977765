"""Environments that fail, for worker processes to import."""

import ctypes
import time
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

LENGTH = 20


class BrokenEnv(gymnasium.Env[Any, Any]):
    """Counts steps within an episode of 20; fails as it is told, at a step drawn from its seed.

    With a `marker`, it fails only as long as there is no such file, and makes it then.
    """

    observation_space = spaces.Box(-1, 1e9, (2,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, how: str = "raise", probability: float = 0.01, marker: str = "") -> None:
        self._how, self._probability = how, probability
        self._marker = Path(marker) if marker else None
        self._t = 0
        self._episode = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        if seed is not None:
            self._seed = seed % 1000
        self._t, self._episode = 0, self._episode + 1
        return self._observe(), {}

    def step(self, action: Any) -> Any:
        if self.np_random.random() < self._probability and not self._has_failed():
            self._fail()
        self._t += 1
        return self._observe(), 1.0, self._t == LENGTH, False, {}

    def _observe(self) -> np.ndarray:
        return np.array([1000 * self._episode + self._t, self._seed], np.float32)

    def _has_failed(self) -> bool:
        if self._marker is None:
            return False
        there = self._marker.exists()
        self._marker.touch()
        return there

    def _fail(self) -> None:
        if self._how == "raise":
            raise RuntimeError("the emulator lost its mind")
        if self._how == "hang":
            time.sleep(3600)
        ctypes.string_at(0)


class AlwaysBroken(BrokenEnv):
    """Fails in its first step, always."""

    def step(self, action: Any) -> Any:
        raise RuntimeError("never works")
