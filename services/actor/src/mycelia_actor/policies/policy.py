"""What a policy is to the actor's loop."""

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from mycelia_actor.environments.spaces import Columns
from mycelia_core.weights import Weights

Slots = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class ActionChoice:
    """What a policy chose for N environments, and what it thought of it."""

    action: Columns
    """The action's columns, `[N, ...]` each."""

    q_taken: NDArray[np.floating[Any]] | None = None
    """[N] Q(s, a) of the actions chosen; None if the policy has no values (yet)."""

    q_max: NDArray[np.floating[Any]] | None = None
    """[N] max_a Q(s, a); None if the policy has no values (yet)."""

    policy_version: int = 0
    """The version of the weights that chose; 0 before the first."""


class Policy(Protocol):
    """Chooses actions for all environments of an actor. One thread owns it."""

    def use(self, weights: Weights) -> None:
        """Acts with these weights from the next call on."""

    def act(self, observation: Columns, slots: Slots | None = None) -> ActionChoice:
        """Chooses actions.

        Args:
          observation: `[n, ...]`, and the column `first` `[n]` beside the
            observation's own: whether it is the first of an episode.
          slots: [n] which environments they are of; None for all, in order.
        """

    def greedy_value(
        self, observation: Columns, slots: Slots | None = None
    ) -> NDArray[np.floating[Any]] | None:
        """Returns max_a Q(s, a) of what comes after what was acted on last, `[E]`.

        Args:
          observation: `[E, ...]`, the final ones of episodes that are over.
          slots: [E] which environments they are of.

        Returns:
          None without weights.
        """
