"""Uniformly random actions in any action space."""

from mycelia_actor.environments.spaces import Columns, SpaceColumns
from mycelia_actor.policies.policy import ActionChoice
from mycelia_core.weights import Weights


class RandomActions:
    """A `Policy` that samples the action space and learns nothing."""

    def __init__(self, action: SpaceColumns, count: int, seed: int) -> None:
        """Samples for `count` environments. Owns the space's generator from now on."""
        self._action = action
        self._count = count
        action.space.seed(seed)

    def use(self, weights: Weights) -> None:
        """Changes nothing."""

    def act(self, observation: Columns) -> ActionChoice:
        """Chooses actions, whatever the observations."""
        sample = self._action.space.sample
        return ActionChoice(self._action.encode([sample() for _ in range(self._count)]))

    def greedy_value(self, observation: Columns) -> None:
        """Has no values."""
