"""A corridor: walk right to the door. Registered as `Corridor-v0` when it is imported."""

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

LEFT, RIGHT = 0, 1


class Corridor(gymnasium.Env[Any, Any]):
    """`length` cells. The reward is 1 at the door and -0.01 for every step before.

    At the left wall one cannot go left; `info["action_mask"]` says so.
    """

    action_space = spaces.Discrete(2)

    def __init__(self, length: int = 8) -> None:
        """Makes a corridor of `length` cells, at least 2."""
        self._length = length
        self._cell = 0
        self.observation_space = spaces.Box(0, 1, (1,), np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        """Starts somewhere in the left half."""
        super().reset(seed=seed)
        self._cell = int(self.np_random.integers(self._length // 2))
        return self._observe(), self._info()

    def step(self, action: Any) -> Any:
        """Takes one step."""
        self._cell = max(0, self._cell + (1 if action == RIGHT else -1))
        at_door = self._cell == self._length - 1
        return self._observe(), 1.0 if at_door else -0.01, at_door, False, self._info()

    def _observe(self) -> Any:
        return np.array([self._cell / (self._length - 1)], np.float32)

    def _info(self) -> dict[str, Any]:
        return {"action_mask": np.array([self._cell > 0, True], np.int8)}


gymnasium.register("Corridor-v0", Corridor, max_episode_steps=50)
