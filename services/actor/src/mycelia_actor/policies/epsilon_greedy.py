"""Epsilon-greedy over the action values of an MLP, each environment with its own epsilon."""

import numpy as np
from numpy.typing import NDArray

from mycelia_actor.environments.spaces import Columns
from mycelia_actor.policies.features import Features
from mycelia_actor.policies.policy import ActionChoice
from mycelia_core import mlp
from mycelia_core.specs import ACTION, OBSERVATION, Signature
from mycelia_core.weights import Weights


class UnplayableError(ValueError):
    """The policy cannot play in these spaces, or not with these weights."""


class ActionValues:
    """The values that an MLP gives the actions of one environment."""

    def __init__(self, signature: Signature) -> None:
        """Prepares for observations and actions of this signature.

        Raises:
          UnplayableError: the action is not one choice out of n.
        """
        self._features = Features(signature.starting_with(OBSERVATION))
        self.action_count = _action_count(signature)
        """A, how many actions there are."""

    def check(self, weights: Weights) -> None:
        """Checks that weights are for these observations and actions.

        Raises:
          UnplayableError: they are not.
        """
        probe = np.zeros((1, self._features.size), np.float32)
        try:
            values = mlp.q_values(weights.tensors, probe)
        except (KeyError, ValueError) as error:
            raise UnplayableError(
                f"weights of version {weights.version} are no MLP of the documented layout for "
                f"{self._features.size} observed numbers: {error}"
            ) from error
        if values.shape != (1, self.action_count):
            raise UnplayableError(
                f"weights of version {weights.version} value {values.shape[1]} actions, "
                f"the environment has {self.action_count}"
            )

    def __call__(self, weights: Weights, observation: Columns) -> NDArray[np.float32]:
        """Returns `[N, A]` values for observations `[N, ...]`."""
        return mlp.q_values(weights.tensors, self._features(observation))


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
        self._values = ActionValues(signature)
        self._epsilon = epsilon
        self._generator = generator
        self._slots = np.arange(len(epsilon))
        self._weights: Weights | None = None

    def use(self, weights: Weights) -> None:
        """Acts with these weights from the next call on.

        Raises:
          UnplayableError: they are for other observations or actions.
        """
        if self._weights is None:
            self._values.check(weights)
        self._weights = weights

    def act(self, observation: Columns) -> ActionChoice:
        """Chooses actions on observations `[N, ...]`."""
        count = len(self._slots)
        random_action = self._generator.integers(self._values.action_count, size=count)
        if self._weights is None:
            return ActionChoice({ACTION: random_action})
        values = self._values(self._weights, observation)
        greedy = values.argmax(axis=1)
        explores = self._generator.random(count) < self._epsilon
        action = np.where(explores, random_action, greedy)
        return ActionChoice(
            {ACTION: action},
            q_taken=values[self._slots, action],
            q_max=values[self._slots, greedy],
            policy_version=self._weights.version,
        )

    def greedy_value(self, observation: Columns) -> NDArray[np.float32] | None:
        """Returns max_a Q(s, a) of observations `[E, ...]`, `[E]`; None without weights."""
        if self._weights is None:
            return None
        best: NDArray[np.float32] = self._values(self._weights, observation).max(axis=1)
        return best


class Greedy:
    """Always the action of the largest value."""

    def __init__(self, signature: Signature, weights: Weights) -> None:
        """Plays with these weights.

        Raises:
          UnplayableError: the action is not one choice out of n, or the weights
            are for other observations or actions.
        """
        self._values = ActionValues(signature)
        self._values.check(weights)
        self._weights = weights

    def __call__(self, observation: Columns) -> Columns:
        """Chooses actions on observations `[N, ...]`."""
        return {ACTION: self._values(self._weights, observation).argmax(axis=1)}


def _action_count(signature: Signature) -> int:
    columns = signature.starting_with(ACTION)
    if len(columns) != 1 or not columns[0].category_count:
        raise UnplayableError(
            "action values need a Discrete action space, got "
            + ", ".join(f"{column.name} {column}" for column in columns)
        )
    return columns[0].category_count
