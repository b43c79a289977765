"""An environment whose steps take as much processor time as one says."""

import time
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

_LENGTH = 1000


class CostlyEnv(gymnasium.Env[Any, Any]):
    """Four numbers, two actions, episodes of 1,000 steps."""

    observation_space = spaces.Box(-1, 1, (4,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, step_cost_us: float = 0.0) -> None:
        """Takes `step_cost_us` microseconds of its thread's time for a step."""
        self._seconds = step_cost_us * 1e-6
        self._seen = np.zeros(4, np.float32)
        self._t = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        """Starts an episode."""
        super().reset(seed=seed)
        self._t = 0
        return self._seen, {}

    def step(self, action: Any) -> Any:
        """Works."""
        end = time.thread_time() + self._seconds
        while time.thread_time() < end:
            pass
        self._t += 1
        return self._seen, 1.0, self._t == _LENGTH, False, {}
