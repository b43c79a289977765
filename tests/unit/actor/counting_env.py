"""An environment that can be foretold, for worker processes to import too."""

from typing import Any

import gymnasium
import numpy as np
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
