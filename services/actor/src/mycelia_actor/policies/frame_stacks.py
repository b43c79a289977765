"""Stacks of the last frames of N environments, made on the actor as replay makes them."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mycelia_actor.policies.policy import Slots


class FrameStacks:
    """The last k frames of each environment; an episode's first frame stands for those before.

    This is what a table's context rows give the learner. One thread owns it.
    """

    def __init__(
        self, count: int, depth: int, shape: tuple[int, ...], dtype: np.dtype[Any]
    ) -> None:
        """Prepares for N environments and stacks of `depth` frames."""
        self._frames = np.zeros((count, depth, *shape), dtype)

    def push(
        self, frames: NDArray[np.uint8], first: NDArray[np.bool_], slots: Slots
    ) -> NDArray[np.uint8]:
        """Takes the newest frames `[n, H, W]` in and returns the stacks `[n, k, H, W]`."""
        stacks = self.peek(frames, slots)
        stacks[first] = frames[first][:, None]
        self._frames[slots] = stacks
        return stacks

    def peek(self, frames: NDArray[np.uint8], slots: Slots) -> NDArray[np.uint8]:
        """Returns the stacks `[E, k, H, W]` as they would be with these frames."""
        return np.concatenate((self._frames[slots, 1:], frames[:, None]), axis=1)
