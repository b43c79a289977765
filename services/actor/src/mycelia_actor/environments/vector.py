"""Many environments stepped together, and what a step of them gives."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from mycelia_actor.environments.spaces import Columns, SpaceColumns


@dataclass(frozen=True, slots=True)
class Observation:
    """What N environments show now. The arrays are the reader's; nobody writes to them again."""

    columns: Columns
    """The observation's columns, `[N, ...]` each."""

    first: NDArray[np.bool_]
    """[N] whether it is the first observation of an episode."""

    ready: NDArray[np.bool_]
    """[N] whether the environment can act on it. One that is not spends its next step on its
    reset, or has failed and waits for its restart: the action is ignored, and there is nothing
    to record."""


@dataclass(frozen=True, slots=True)
class StepResult:
    """What one step of N environments gave. An environment that was not ready gave nothing."""

    observation: Observation
    """What to act on next: after an episode's end the next episode's first one."""

    reward: NDArray[np.float64]
    """[N]"""

    terminated: NDArray[np.bool_]
    """[N]"""

    truncated: NDArray[np.bool_]
    """[N]"""

    step_count: int
    """How many environments really stepped."""

    ended: NDArray[np.int64]
    """[E] the slots whose episode ended with this step, ascending."""

    final_observation: Columns
    """The true last observations of those episodes, `[E, ...]` each; nothing if E is 0."""

    episode_returns: NDArray[np.float64]
    """[D] the sum of an episode's rewards, of each of `ended` that is really over: a life lost
    in Atari ends what is bootstrapped over, but the episode goes on."""

    episode_lengths: NDArray[np.int64]
    """[D] in environment steps."""

    stepped: NDArray[np.bool_] | None = None
    """[N] who took the step; None if all did that were ready."""

    over: NDArray[np.int64] | None = None
    """[D] which of `ended` are over; None for all."""

    failed: NDArray[np.int64] | None = None
    """[F] the slots whose environment failed instead of stepping; None for none. What they
    showed before is their episode's last observation. They are not in `ended`."""


class VectorEnvironment(Protocol):
    """N environments that reset themselves. One thread owns them."""

    observation: SpaceColumns
    action: SpaceColumns
    count: int

    def reset(self, seeds: Sequence[int]) -> Observation:
        """Starts new episodes; N seeds, one for each environment."""

    def step(self, action: Columns) -> StepResult:
        """Takes one step in every environment; actions are columns `[N, ...]`."""

    def close(self) -> None:
        """Closes the environments."""


class EpisodeStatistics:
    """Sums rewards and steps of the running episode of each of N environments."""

    def __init__(self, count: int) -> None:
        """Starts N episodes."""
        self._returns = np.zeros(count, np.float64)
        self._lengths = np.zeros(count, np.int64)

    def add(self, reward: NDArray[np.float64], stepped: NDArray[np.bool_] | int = 1) -> None:
        """Adds one step: rewards [N], and who stepped [N]."""
        self._returns += reward
        self._lengths += stepped

    def finish(self, ended: NDArray[np.int64]) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Returns return and length of the episodes of slots `ended` [E], and starts new ones."""
        returns, lengths = self._returns[ended], self._lengths[ended]
        self._returns[ended] = 0.0
        self._lengths[ended] = 0
        return returns, lengths


def join(parts: Sequence[Columns]) -> Columns:
    """Returns the rows of all parts, one after the other; nothing if there are no parts."""
    if not parts:
        return {}
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
