"""Action masks: which actions an environment allows, as a column beside the observation."""

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

ACTION_MASK = "action_mask"
"""The column's name, and the key in `info`."""

INFO = "info"
"""`env.action_mask` for environments that put the mask into `info["action_mask"]`."""


class ActionMaskError(ValueError):
    """A mask that is missing, has another length, or allows nothing."""


class MaskedDict(spaces.Dict):
    """The observation space of a masked environment: `observation` and `action_mask`."""


class ActionMask(gymnasium.Wrapper[Any, Any, Any, Any], gymnasium.utils.RecordConstructorArgs):
    """Shows the mask of every step beside the observation, wherever the environment keeps it."""

    def __init__(self, env: gymnasium.Env[Any, Any], source: str) -> None:
        """Takes the mask from `info`, or from the key `source` of a Dict observation.

        Raises:
          ActionMaskError: there is no such key, or the action is not one choice out of n.
        """
        gymnasium.utils.RecordConstructorArgs.__init__(self, source=source)
        super().__init__(env)
        if not isinstance(env.action_space, spaces.Discrete):
            raise ActionMaskError(
                f"env.action_mask: masks need a Discrete action space, got {env.action_space}"
            )
        self._count = int(env.action_space.n)
        self._source = source
        self._env_steps = 0
        shown = env.observation_space if source == INFO else _without(env, source)
        mask = spaces.MultiBinary(self._count)
        self.observation_space = MaskedDict({"observation": shown, ACTION_MASK: mask})

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        """Starts an episode."""
        seen, info = self.env.reset(seed=seed, options=options)
        return self._show(seen, info, terminated=False), info

    def step(self, action: Any) -> Any:
        """Takes one step."""
        self._env_steps += 1
        seen, reward, terminated, truncated, info = self.env.step(action)
        shown = self._show(seen, info, terminated=terminated)
        return shown, reward, terminated, truncated, info

    def _show(self, seen: Any, info: dict[str, Any], *, terminated: bool) -> dict[str, Any]:
        if self._source == INFO:
            mask = info.get(ACTION_MASK)
        else:
            mask = seen[self._source]
            seen = {key: value for key, value in seen.items() if key != self._source}
        return {"observation": seen, ACTION_MASK: self._checked(mask, terminated)}

    def _checked(self, mask: Any, terminated: bool) -> Any:
        where = f"environment {self.spec.id if self.spec else self.unwrapped}, step "
        where += str(self._env_steps)
        if mask is None:
            # Where nothing can be done any more, there may be no mask.
            if terminated:
                return np.zeros(self._count, np.int8)
            raise ActionMaskError(f'{where}: info["{ACTION_MASK}"] is missing')
        legal = np.asarray(mask, np.int8)
        if legal.shape != (self._count,):
            raise ActionMaskError(
                f"{where}: the action mask has shape {list(legal.shape)}, expected [{self._count}]"
            )
        if not terminated and not legal.any():
            raise ActionMaskError(f"{where}: the action mask allows no action")
        return legal


def _without(env: gymnasium.Env[Any, Any], key: str) -> spaces.Dict:
    space = env.observation_space
    if not isinstance(space, spaces.Dict) or key not in space.spaces:
        raise ActionMaskError(f"env.action_mask={key!r}: no such key in observation space {space}")
    return spaces.Dict({name: child for name, child in space.spaces.items() if name != key})
