"""Uniformly random actions in any action space."""

from typing import Any

import numpy as np
from gymnasium import Space
from gymnasium.vector.utils import batch_space

from mycelia_actor.environments.action_mask import ACTION_MASK
from mycelia_actor.environments.spaces import Columns, SpaceColumns
from mycelia_actor.policies.legal import random_legal
from mycelia_actor.policies.policy import ActionChoice, Slots
from mycelia_core.specs import ACTION
from mycelia_core.weights import Weights


class RandomActions:
    """A `Policy` that samples the action space and learns nothing."""

    def __init__(self, action: SpaceColumns, count: int, seed: int) -> None:
        """Samples for `count` environments."""
        self._action = action
        self._count = count
        self._generator = np.random.default_rng(seed)
        self._batches: dict[int, Space[Any]] = {}

    def use(self, weights: Weights) -> None:
        """Changes nothing."""

    def act(self, observation: Columns, slots: Slots | None = None) -> ActionChoice:
        """Chooses actions, whatever the observations; only legal ones where there is a mask."""
        mask = observation.get(ACTION_MASK)
        if mask is not None:
            return ActionChoice({ACTION: random_legal(mask, self._generator)})
        batch = self._batches.get(count := self._count if slots is None else len(slots))
        if batch is None:
            batch = self._batches[count] = batch_space(self._action.space, count)
            batch.seed(int(self._generator.integers(2**31)))
        return ActionChoice(self._action.encode_batch(batch.sample()))

    def greedy_value(self, observation: Columns, slots: Slots | None = None) -> None:
        """Has no values."""
