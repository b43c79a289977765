"""Atari as the field plays it: one environment, preprocessed frame by frame.

Mnih et al. 2015 (https://doi.org/10.1038/nature14236), extended data table 1, and
Machado et al. 2018 (https://arxiv.org/abs/1709.06009) for sticky actions.
"""

from functools import lru_cache
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from mycelia_core.config import AtariConfig

LIFE_LOST = "life_lost"
"""The key in `info` that says that this step cost a life and the game goes on."""

_NOOP, _FIRE = 0, 1


class AtariFrames(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Repeats actions, takes the maximum of the last two screens, shows them small and grey.

    The environment must not skip frames itself. Observations are `[84, 84]` uint8;
    stacks of them are made where they are needed, from the rows before.
    """

    def __init__(self, env: gymnasium.Env[Any, Any], config: AtariConfig) -> None:
        """Wraps an `ale_py` environment with frame-skip 1."""
        super().__init__(env)
        self._config = config
        self._ale = env.unwrapped.ale  # type: ignore[attr-defined]
        size = config.screen_size
        self._to_small = _Shrink(self._ale.getScreenDims(), size)
        self._screens = np.zeros((2, *self._ale.getScreenDims()), np.uint8)
        self._lives = 0
        self.observation_space = spaces.Box(0, 255, (size, size), np.uint8)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        """Starts an episode with up to `noop_max` steps that do nothing."""
        _, info = self.env.reset(seed=seed, options=options)
        if self._config.noop_max:
            self._wait(int(self.unwrapped.np_random.integers(1, self._config.noop_max + 1)))
        if self._config.fire_reset and _can_fire(self.env):
            self.env.step(_FIRE)
        self._lives = self._ale.lives()
        self._screens[:] = 0
        self._ale.getScreenGrayscale(self._screens[0])
        return self._to_small(self._screens[0]), info

    def step(self, action: Any) -> Any:
        """Repeats the action; the reward is the sum."""
        total, terminated, truncated = 0.0, False, False
        info: dict[str, Any] = {}
        skip = self._config.frame_skip
        for frame in range(skip):
            _, reward, terminated, truncated, info = self.env.step(action)
            total += float(reward)
            if terminated or truncated:
                # Where the episode ends early there may be one screen only.
                self._ale.getScreenGrayscale(self._screens[1])
                break
            if frame >= skip - 2:
                self._ale.getScreenGrayscale(self._screens[frame - (skip - 2)])
        lives = self._ale.lives()
        if self._config.life_loss and lives < self._lives and not terminated:
            info = info | {LIFE_LOST: True}
        self._lives = lives
        return self._to_small(self._screens.max(axis=0)), total, terminated, truncated, info

    def _wait(self, steps: int) -> None:
        for _ in range(steps):
            _, _, terminated, truncated, _ = self.env.step(_NOOP)
            if terminated or truncated:
                self.env.reset()


class _Shrink:
    """Area interpolation to a square, as two products with the share of each source pixel."""

    def __init__(self, dims: tuple[int, int], size: int) -> None:
        height, width = dims
        self._rows = _area_weights(height, size)
        self._columns = np.ascontiguousarray(_area_weights(width, size).T)

    def __call__(self, screen: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Returns `[size, size]` uint8 of a screen `[height, width]`."""
        small = self._rows @ screen.astype(np.float32) @ self._columns
        rounded: NDArray[np.uint8] = np.rint(small).astype(np.uint8)
        return rounded


@lru_cache
def _area_weights(length: int, size: int) -> NDArray[np.float32]:
    """Returns [size, length]: what share of small pixel i lies on large pixel j."""
    edges = np.arange(size + 1) * length / size
    pixel = np.arange(length)
    low = np.maximum(edges[:-1, None], pixel)
    high = np.minimum(edges[1:, None], pixel + 1)
    weights: NDArray[np.float32] = (np.maximum(high - low, 0) * size / length).astype(np.float32)
    return weights


def _can_fire(env: gymnasium.Env[Any, Any]) -> bool:
    meanings = env.unwrapped.get_action_meanings()  # type: ignore[attr-defined]
    return len(meanings) > _FIRE and meanings[_FIRE] == "FIRE"
