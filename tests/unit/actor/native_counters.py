"""Counting environments that behave like EnvPool and like ale-py's vector Atari."""

from typing import Any, ClassVar

import numpy as np
from counting_env import CountingEnv
from gymnasium import spaces
from gymnasium.vector import AutoresetMode


class _NativeCounters:
    """Resets in the step after an end: its action is ignored, its reward 0, its flags false.

    The arrays that it returns are overwritten by the next step.
    """

    metadata: ClassVar[dict[str, Any]] = {"autoreset_mode": AutoresetMode.NEXT_STEP}
    single_action_space = CountingEnv.action_space
    single_observation_space: spaces.Box
    reward_dtype: Any

    def __init__(self, offsets: tuple[float, ...]) -> None:
        self._environments = [CountingEnv(offset) for offset in offsets]
        count = self.num_envs = len(offsets)
        shape, dtype = self.single_observation_space.shape, self.single_observation_space.dtype
        self._seen = np.zeros((count, *shape), dtype)
        self._reward = np.zeros(count, self.reward_dtype)
        self._terminated, self._truncated = np.zeros(count, bool), np.zeros(count, bool)
        self._elapsed = np.zeros(count, np.int32)

    def _reset_all(self) -> np.ndarray:
        for slot in range(self.num_envs):
            self._reset_one(slot)
        return self._seen

    def step(self, actions: np.ndarray) -> Any:
        assert actions.shape == (self.num_envs,)
        ended = self._terminated | self._truncated
        for slot, environment in enumerate(self._environments):
            if ended[slot]:
                self._reset_one(slot)
                continue
            seen, reward, terminated, truncated, _ = environment.step(actions[slot])
            self._seen[slot], self._reward[slot] = self._shown(seen), reward
            self._terminated[slot], self._truncated[slot] = terminated, truncated
            self._elapsed[slot] += 1
        return self._seen, self._reward, self._terminated, self._truncated, self._infos()

    def close(self) -> None:
        pass

    def _reset_one(self, slot: int) -> None:
        self._seen[slot] = self._shown(self._environments[slot].reset()[0])
        self._reward[slot] = self._elapsed[slot] = 0
        self._terminated[slot] = self._truncated[slot] = False

    def _shown(self, seen: np.ndarray) -> np.ndarray:
        return seen

    def _infos(self) -> dict[str, Any]:
        return {}


class PoolOfCounters(_NativeCounters):
    """As EnvPool: seeds are given when it is made, rewards are float32."""

    single_observation_space = CountingEnv.observation_space
    reward_dtype = np.float32

    def reset(self) -> Any:
        return self._reset_all(), self._infos()

    def _infos(self) -> dict[str, Any]:
        ids = np.arange(self.num_envs, dtype=np.int32)
        return {"env_id": ids, "players": {"env_id": ids}, "elapsed_step": self._elapsed}


class ScreensOfCounters(_NativeCounters):
    """As ale-py's vector Atari: int32 rewards, lives, screens in stacks of one.

    The four pixels of a screen are the four bytes of the number, the highest first.
    """

    single_observation_space = spaces.Box(0, 255, (1, 2, 2), np.uint8)
    reward_dtype = np.int32

    def reset(self, *, seed: np.ndarray) -> Any:
        assert seed.dtype == np.int32 and seed.shape == (self.num_envs,)
        return self._reset_all(), self._infos()

    def _infos(self) -> dict[str, Any]:
        # The last life is lost where the game is over, and not where it is cut off.
        return {"lives": 1 - self._terminated.astype(np.int32)}

    def _shown(self, seen: np.ndarray) -> np.ndarray:
        return seen.astype(">u4").view(np.uint8).reshape(1, 2, 2)
