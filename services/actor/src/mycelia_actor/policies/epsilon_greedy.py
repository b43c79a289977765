"""Epsilon-greedy over the action values of an MLP, each environment with its own epsilon."""

import numpy as np
from mycelia_core import mlp
from mycelia_core.specs import ACTION, Signature
from mycelia_core.weights import Weights
from numpy.typing import NDArray

from mycelia_actor.environments.spaces import Columns
from mycelia_actor.policies.features import Features
from mycelia_actor.policies.policy import ActionChoice


class UnplayableError(ValueError):
    """The policy cannot play in these spaces, or not with these weights."""


class EpsilonGreedy:
    """A `Policy`: random with probability epsilon, else the action of the largest value.

    Without weights every action is random.
    """

    def __init__(
        self,
        signature: Signature,
        epsilon: NDArray[np.float64],
        generator: np.random.Generator,
    ) -> None:
        """Prepares for N environments.

        Args:
          signature: what rows are made of.
          epsilon: [N] how often each environment takes a random action.
          generator: where the randomness comes from.

        Raises:
          UnplayableError: the action is not one choice out of n.
        """
        self._features = Features(signature.starting_with("observation"))
        self._action_count = _action_count(signature)
        self._epsilon = epsilon
        self._explores = bool((epsilon > 0).any())
        self._generator = generator
        self._rows = np.arange(len(epsilon))
        self._weights: Weights | None = None

    def use(self, weights: Weights) -> None:
        """Acts with these weights from the next call on.

        Raises:
          UnplayableError: the weights are for other observations or actions.
        """
        probe = np.zeros((1, self._features.size), np.float32)
        try:
            values = mlp.q_values(weights.tensors, probe)
        except (KeyError, ValueError) as error:
            raise UnplayableError(
                f"weights of version {weights.version} do not take {self._features.size} features "
                f"in the documented MLP layout: {error}"
            ) from error
        if values.shape != (1, self._action_count):
            raise UnplayableError(
                f"weights of version {weights.version} value {values.shape[1]} actions, "
                f"the environment has {self._action_count}"
            )
        self._weights = weights

    def act(self, observation: Columns) -> ActionChoice:
        """Chooses actions on observations `[N, ...]`."""
        count = len(self._rows)
        if self._weights is None:
            return ActionChoice({ACTION: self._generator.integers(self._action_count, size=count)})
        values = mlp.q_values(self._weights.tensors, self._features(observation))
        greedy = values.argmax(axis=1)
        q_max = values[self._rows, greedy]
        action, q_taken = greedy, q_max
        if self._explores:
            explores = self._generator.random(count) < self._epsilon
            action = np.where(
                explores, self._generator.integers(self._action_count, size=count), greedy
            )
            q_taken = values[self._rows, action]
        return ActionChoice({ACTION: action}, q_taken, q_max, self._weights.version)

    def greedy_value(self, observation: Columns) -> NDArray[np.float32] | None:
        """Returns max_a Q(s, a) of observations `[E, ...]`, `[E]`; None without weights."""
        if self._weights is None:
            return None
        values = mlp.q_values(self._weights.tensors, self._features(observation))
        best: NDArray[np.float32] = values.max(axis=1)
        return best


def greedy_actions(weights: Weights, features: Features, observation: Columns) -> Columns:
    """Returns the actions of largest value on observations `[N, ...]`."""
    values = mlp.q_values(weights.tensors, features(observation))
    return {ACTION: values.argmax(axis=1)}


def _action_count(signature: Signature) -> int:
    columns = signature.starting_with(ACTION)
    if len(columns) != 1 or not columns[0].category_count:
        raise UnplayableError(
            "action values need a Discrete action space, got "
            + ", ".join(f"{column.name} {column}" for column in columns)
        )
    return columns[0].category_count
