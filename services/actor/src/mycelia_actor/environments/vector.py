"""Many environments stepped together, and what a step of them gives."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from mycelia_actor.environments.make import Environment
from mycelia_actor.environments.spaces import (
    Columns,
    SpaceColumns,
    action_columns,
    observation_columns,
)


@dataclass(frozen=True, slots=True)
class Observation:
    """What N environments show now. The arrays are the reader's; nobody writes to them again."""

    columns: Columns
    """The observation's columns, `[N, ...]` each."""

    first: NDArray[np.bool_]
    """[N] whether it is the first observation of an episode."""

    ready: NDArray[np.bool_]
    """[N] whether the environment can act on it. One that is not spends its next step on its
    reset: the action is ignored, and there is nothing to record."""


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
    """[E]"""

    episode_lengths: NDArray[np.int64]
    """[E] in environment steps."""


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


class InProcessEnvironments:
    """N single environments, stepped one after the other in this process.

    It resets an environment in the step that ended its episode, so every one
    is ready at all times. A `VectorEnvironment`.
    """

    def __init__(self, environments: Sequence[Environment]) -> None:
        """Takes ownership of environments of one kind."""
        self._environments = list(environments)
        self.count = len(self._environments)
        self.observation = observation_columns(self._environments[0].observation_space)
        self.action = action_columns(self._environments[0].action_space)
        self._statistics = EpisodeStatistics(self.count)
        self._all_ready = np.ones(self.count, np.bool_)

    def reset(self, seeds: Sequence[int]) -> Observation:
        """Starts new episodes; N seeds, one for each environment."""
        self._statistics = EpisodeStatistics(self.count)
        columns = self.observation.allocate(self.count)
        for slot, (environment, seed) in enumerate(zip(self._environments, seeds, strict=True)):
            value, _ = environment.reset(seed=seed)
            self.observation.write(columns, slot, value)
        return Observation(columns, np.ones(self.count, np.bool_), self._all_ready)

    def step(self, action: Columns) -> StepResult:
        """Takes one step in every environment; actions are columns `[N, ...]`."""
        # Fresh arrays each time: whoever keeps an observation need not copy it.
        columns = self.observation.allocate(self.count)
        reward = np.empty(self.count, np.float64)
        terminated = np.zeros(self.count, np.bool_)
        truncated = np.zeros(self.count, np.bool_)
        final_values: list[Columns] = []
        actions = self.action.decode(action)
        for slot, (environment, value) in enumerate(zip(self._environments, actions, strict=True)):
            seen, reward[slot], ends, cut, _ = environment.step(value)
            if ends or cut:
                terminated[slot], truncated[slot] = ends, cut
                # Copied before the reset: environments may reuse their buffers.
                final_values.append(self.observation.encode([seen]))
                seen, _ = environment.reset()
            self.observation.write(columns, slot, seen)
        return self._result(columns, reward, terminated, truncated, final_values)

    def close(self) -> None:
        """Closes the environments."""
        for environment in self._environments:
            environment.close()

    def _result(
        self,
        columns: Columns,
        reward: NDArray[np.float64],
        terminated: NDArray[np.bool_],
        truncated: NDArray[np.bool_],
        final_values: list[Columns],
    ) -> StepResult:
        first = terminated | truncated
        ended = np.flatnonzero(first)
        self._statistics.add(reward)
        returns, lengths = self._statistics.finish(ended)
        return StepResult(
            observation=Observation(columns, first, self._all_ready),
            reward=reward,
            terminated=terminated,
            truncated=truncated,
            step_count=self.count,
            ended=ended,
            final_observation=join(final_values),
            episode_returns=returns,
            episode_lengths=lengths,
        )


def join(parts: Sequence[Columns]) -> Columns:
    """Returns the rows of all parts, one after the other; nothing if there are no parts."""
    if not parts:
        return {}
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
