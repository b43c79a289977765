"""An environment whose steps take as much time, but no work, as one says."""

import time
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

KINDS = 4
LENGTH = 20

slowness = 1.0
"""Multiplies how long steps take; of this process."""


class SleepyEnv(gymnasium.Env[Any, Any]):
    """Shows one of four signs at each of 20 steps; two of them want action 0, the others 1.

    The return is how many of the 20 were right.
    """

    observation_space = spaces.Box(0, 1, (KINDS,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, step_seconds: float = 0.05) -> None:
        """Sleeps `step_seconds`, times `slowness`, in each step."""
        self._step_seconds = step_seconds
        self._kind = 0
        self._t = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        """Starts an episode."""
        super().reset(seed=seed)
        self._t = 0
        return self._show(), {}

    def step(self, action: Any) -> Any:
        """Sleeps, and rewards the right action with 1."""
        time.sleep(self._step_seconds * slowness)
        reward = float(int(action) == self._kind % 2)
        self._t += 1
        return self._show(), reward, False, self._t == LENGTH, {}

    def _show(self) -> np.ndarray:
        self._kind = int(self.np_random.integers(KINDS))
        return np.eye(KINDS, dtype=np.float32)[self._kind]
