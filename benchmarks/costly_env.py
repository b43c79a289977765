"""An environment whose steps take as much time, at work or waiting, as one says."""

import time
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

_LENGTH = 1000
_SCREEN = (84, 84)


class CostlyEnv(gymnasium.Env[Any, Any]):
    """Four numbers or a grey screen, two actions, episodes of 1,000 steps."""

    action_space = spaces.Discrete(2)

    def __init__(
        self, step_cost_us: float = 0.0, step_wait_us: float = 0.0, *, screen: bool = False
    ) -> None:
        """Chooses what a step costs.

        Args:
          step_cost_us: microseconds of its thread's processor time.
          step_wait_us: microseconds that it sleeps besides, as a simulator or robot
            elsewhere would have it wait.
          screen: whether it shows uint8 [84, 84] instead of float32 [4].
        """
        self.observation_space = (
            spaces.Box(0, 255, _SCREEN, np.uint8) if screen else spaces.Box(-1, 1, (4,), np.float32)
        )
        self._work_seconds, self._wait_seconds = step_cost_us * 1e-6, step_wait_us * 1e-6
        self._seen = np.zeros(self.observation_space.shape, self.observation_space.dtype)
        self._t = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        """Starts an episode."""
        super().reset(seed=seed)
        self._t = 0
        return self._seen, {}

    def step(self, action: Any) -> Any:
        """Works, and waits."""
        end = time.thread_time() + self._work_seconds
        while time.thread_time() < end:
            pass
        if self._wait_seconds:
            time.sleep(self._wait_seconds)
        self._t += 1
        return self._seen, 1.0, self._t == _LENGTH, False, {}
