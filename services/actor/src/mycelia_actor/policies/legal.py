"""Choices among the actions that a mask allows."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mycelia_actor.environments.action_mask import ActionMaskError


def random_legal(mask: NDArray[Any], generator: np.random.Generator) -> NDArray[np.int64]:
    """Returns a uniformly random legal action for each mask `[n, A]`, `[n]`.

    Raises:
      ActionMaskError: a mask allows nothing.
    """
    # The largest of independent uniform numbers is anyone's with the same probability.
    draws = np.where(mask, generator.random(mask.shape), -1.0)
    action: NDArray[np.int64] = draws.argmax(axis=1)
    _check(draws[np.arange(len(action)), action] >= 0)
    return action


def legal_values(values: NDArray[Any], mask: NDArray[Any]) -> NDArray[Any]:
    """Returns values `[n, A]` with the lowest number there is for actions that are not legal.

    Raises:
      ActionMaskError: a mask allows nothing.
    """
    _check(np.asarray(mask.any(axis=1)))
    return np.where(mask, values, np.finfo(values.dtype).min)


def _check(legal: NDArray[np.bool_]) -> None:
    if not legal.all():
        raise ActionMaskError(f"environment {int(legal.argmin())}: its mask allows no action")
