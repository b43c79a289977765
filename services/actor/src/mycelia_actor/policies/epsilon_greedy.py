"""Epsilon-greedy over action values, each environment with its own epsilon."""

import numpy as np
from numpy.typing import NDArray

from mycelia_actor.environments.action_mask import ACTION_MASK
from mycelia_actor.environments.spaces import Columns
from mycelia_actor.policies.action_values import ActionValues
from mycelia_actor.policies.legal import legal_values, random_legal
from mycelia_actor.policies.policy import ActionChoice, Slots
from mycelia_core.specs import ACTION
from mycelia_core.weights import Weights


class EpsilonGreedy:
    """A `Policy`: random with probability epsilon, else the action of the largest value.

    Without weights every action is random. Where the environment has masks, only
    legal actions are chosen, and only their values count.
    """

    def __init__(
        self,
        values: ActionValues,
        epsilon: NDArray[np.float64],
        generator: np.random.Generator,
    ) -> None:
        """Prepares for N environments.

        Args:
          values: what values actions.
          epsilon: [N] how often each environment takes a random action.
          generator: where the randomness comes from.
        """
        self._values = values
        self._epsilon = epsilon
        self._generator = generator
        self._slots = np.arange(len(epsilon))

    def use(self, weights: Weights) -> None:
        """Acts with these weights from the next call on.

        Raises:
          UnplayableError: they are for other observations or actions.
        """
        self._values.use(weights)

    def act(self, observation: Columns, slots: Slots | None = None) -> ActionChoice:
        """Chooses actions on observations `[n, ...]`."""
        slots = self._slots if slots is None else slots
        values = self._values.see(observation, slots)
        random_action = self._random_action(observation, len(slots))
        if values is None:
            return ActionChoice({ACTION: random_action})
        values = _masked(values, observation)
        rows = self._slots[: len(slots)]
        greedy = values.argmax(axis=1)
        explores = self._generator.random(len(slots)) < self._epsilon[slots]
        action = np.where(explores, random_action, greedy)
        return ActionChoice(
            {ACTION: action},
            q_taken=values[rows, action],
            q_max=values[rows, greedy],
            policy_version=self._values.version,
        )

    def greedy_value(
        self, observation: Columns, slots: Slots | None = None
    ) -> NDArray[np.float32] | None:
        """Returns max_a Q(s, a) of observations `[E, ...]`, `[E]`; None without weights."""
        values = self._values.look_ahead(observation, self._slots if slots is None else slots)
        if values is None:
            return None
        best: NDArray[np.float32] = _masked(values, observation).max(axis=1)
        return best

    def _random_action(self, observation: Columns, count: int) -> NDArray[np.int64]:
        mask = observation.get(ACTION_MASK)
        if mask is not None:
            return random_legal(mask, self._generator)
        return self._generator.integers(self._values.action_count, size=count)


def _masked(values: NDArray[np.float32], observation: Columns) -> NDArray[np.float32]:
    mask = observation.get(ACTION_MASK)
    return values if mask is None else legal_values(values, mask)
