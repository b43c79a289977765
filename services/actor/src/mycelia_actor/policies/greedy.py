"""Always the action of the largest value: how a policy is judged."""

import numpy as np

from mycelia_actor.environments.action_mask import ACTION_MASK
from mycelia_actor.environments.spaces import Columns
from mycelia_actor.policies.action_values import ActionValues
from mycelia_actor.policies.legal import legal_values
from mycelia_actor.policies.policy import Slots
from mycelia_core.specs import ACTION
from mycelia_core.weights import Weights


class Greedy:
    """Plays greedily with one version of the weights."""

    def __init__(self, values: ActionValues, weights: Weights) -> None:
        """Plays with these weights.

        Raises:
          UnplayableError: they are for other observations or actions.
        """
        values.use(weights)
        self._values = values

    def __call__(self, observation: Columns, slots: Slots) -> Columns:
        """Chooses actions on observations `[n, ...]` and `first` `[n]` of environments `slots`."""
        values = self._values.see(observation, slots)
        assert values is not None, "weights were given"
        if ACTION_MASK in observation:
            values = legal_values(values, observation[ACTION_MASK])
        return {ACTION: np.asarray(values.argmax(axis=1))}
