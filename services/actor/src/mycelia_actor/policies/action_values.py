"""What values the actions of an environment: an MLP with numpy, or a network with torch."""

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from mycelia_actor.environments.spaces import Columns
from mycelia_actor.policies.features import Features
from mycelia_actor.policies.policy import Slots
from mycelia_core import mlp
from mycelia_core.config import RunConfig
from mycelia_core.specs import ACTION, OBSERVATION, Signature
from mycelia_core.weights import Weights


class UnplayableError(ValueError):
    """The policy cannot play in these spaces, or not with these weights."""


class ActionValues(Protocol):
    """Values actions of N environments. One thread owns it."""

    action_count: int
    """A, how many actions there are."""

    version: int
    """The version of the weights that valued last; 0 before the first."""

    def use(self, weights: Weights) -> None:
        """Values with these weights from the next call on.

        Raises:
          UnplayableError: they are for other observations or actions.
        """

    def see(self, observation: Columns, slots: Slots) -> NDArray[np.float32] | None:
        """Returns `[n, A]` values of what environments `slots` show now; None without weights."""

    def look_ahead(self, observation: Columns, slots: Slots) -> NDArray[np.float32] | None:
        """Returns `[E, A]` values of what comes after what `slots` showed last."""


class MlpValues:
    """The values of the documented MLP, evaluated with numpy. An `ActionValues`."""

    def __init__(self, signature: Signature) -> None:
        """Prepares for observations and actions of this signature.

        Raises:
          UnplayableError: the action is not one choice out of n.
        """
        self._features = Features(signature.starting_with(OBSERVATION))
        self.action_count = count_actions(signature)
        self.version = 0
        self._weights: Weights | None = None

    def use(self, weights: Weights) -> None:
        """Values with these weights from the next call on.

        Raises:
          UnplayableError: they are for other observations or actions.
        """
        if self._weights is None:
            self._check(weights)
        self._weights = weights
        self.version = weights.version

    def see(self, observation: Columns, slots: Slots) -> NDArray[np.float32] | None:
        """Returns `[n, A]` values of observations `[n, ...]`; None without weights."""
        if self._weights is None:
            return None
        return mlp.q_values(self._weights.tensors, self._features(observation))

    def look_ahead(self, observation: Columns, slots: Slots) -> NDArray[np.float32] | None:
        """Returns `[E, A]` values of observations `[E, ...]`; None without weights."""
        return self.see(observation, slots)

    def _check(self, weights: Weights) -> None:
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


def make_action_values(
    signature: Signature, config: RunConfig, count: int, device: str = "cpu"
) -> ActionValues:
    """Returns what the run's network values actions of `count` environments with.

    Args:
      signature: of the run's rows.
      config: says which network.
      count: N.
      device: where torch evaluates it; without convolutions, numpy does on a CPU.

    Raises:
      UnplayableError: the network or the action space does not fit, or torch is missing.
    """
    if not config.network.convolutions and device == "cpu":
        return MlpValues(signature)
    # Only who sees images needs torch, or has a GPU.
    try:
        from mycelia_actor.policies.image_values import ImageValues
        from mycelia_actor.policies.vector_values import VectorValues
    except ImportError as error:
        raise UnplayableError(
            f"network.convolutions needs mycelia-actor[torch]: {error}"
        ) from error
    if not config.network.convolutions:
        return VectorValues(signature, config, device)
    return ImageValues(signature, config, count, device)


def count_actions(signature: Signature) -> int:
    """Returns how many actions there are.

    Raises:
      UnplayableError: the action is not one choice out of n.
    """
    columns = signature.starting_with(ACTION)
    if len(columns) != 1 or not columns[0].category_count:
        raise UnplayableError(
            "action values need a Discrete action space, got "
            + ", ".join(f"{column.name} {column}" for column in columns)
        )
    return columns[0].category_count
