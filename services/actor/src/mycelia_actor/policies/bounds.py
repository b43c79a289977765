"""Continuous actions within the bounds of their space."""

from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from mycelia_actor.environments.spaces import Columns, SpaceColumns
from mycelia_core.specs import ACTION


def within_bounds(action: SpaceColumns, chosen: NDArray[Any]) -> Columns:
    """Returns the action columns of numbers [n, D], cut off at the space's bounds.

    Only what the environment gets is cut off: a policy's density is that of what it chose.
    """
    space = action.space
    assert isinstance(space, spaces.Box)
    shaped = chosen.reshape(-1, *space.shape)
    return {ACTION: np.clip(shaped, space.low, space.high).astype(space.dtype, copy=False)}
