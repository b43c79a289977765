"""Always the most probable action of an actor-critic: how such a policy is judged."""

from collections.abc import Callable
from math import prod

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from mycelia_actor.environments.spaces import Columns, SpaceColumns
from mycelia_actor.policies.action_values import UnplayableError
from mycelia_actor.policies.bounds import within_bounds
from mycelia_actor.policies.features import Features
from mycelia_actor.policies.policy import Slots
from mycelia_core import actor_critic
from mycelia_core.config import RunConfig
from mycelia_core.specs import ACTION
from mycelia_core.weights import Weights

ChooseActions = Callable[[Columns, Slots], Columns]


def make_greedy_policy(
    observation: SpaceColumns, action: SpaceColumns, config: RunConfig, weights: Weights
) -> ChooseActions:
    """Returns what plays greedily with an actor-critic's weights, whatever its form.

    Raises:
      UnplayableError: the weights do not fit the environment, or torch is needed and missing.
    """
    if actor_critic.is_plain(weights.tensors):
        return GreedyPolicy(observation, action, config, weights)
    # Only an LSTM and convolutions need torch.
    try:
        from mycelia_actor.gradients.greedy import GreedyNetwork
    except ImportError as error:
        raise UnplayableError(f"this network needs mycelia-actor[torch]: {error}") from error
    return GreedyNetwork(observation, action, config, weights)


class GreedyPolicy:
    """Plays the mode of an MLP's policy, evaluated with numpy."""

    def __init__(
        self, observation: SpaceColumns, action: SpaceColumns, config: RunConfig, weights: Weights
    ) -> None:
        """Plays with these weights.

        Raises:
          UnplayableError: they are for other observations or actions.
        """
        self._features = Features(observation.specs)
        self._action = action
        self._activation = config.network.activation
        self._tensors = weights.tensors
        self._check(weights.version)

    def __call__(self, observation: Columns, slots: Slots) -> Columns:
        """Chooses actions on observations `[n, ...]`."""
        output = self._output(self._features(observation))
        if isinstance(self._action.space, spaces.Discrete):
            return {ACTION: np.asarray(output.argmax(axis=1))}
        return within_bounds(self._action, output)

    def _output(self, features: NDArray[np.float32]) -> NDArray[np.float32]:
        return actor_critic.policy_output(self._tensors, features, self._activation)

    def _check(self, version: int) -> None:
        probe = np.zeros((1, self._features.size), np.float32)
        try:
            size = self._output(probe).shape[1]
        except (KeyError, ValueError) as error:
            raise UnplayableError(
                f"weights of version {version} are no actor-critic for "
                f"{self._features.size} observed numbers: {error}"
            ) from error
        space = self._action.space
        wanted = space.n if isinstance(space, spaces.Discrete) else prod(space.shape or ())
        if size != wanted:
            raise UnplayableError(
                f"weights of version {version} are for {size} actions, not for {space}"
            )
