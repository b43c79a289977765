"""Gymnasium's vector environments as `VectorEnvironment`s: one adapter for each autoreset mode.

What a vector environment returns around an episode's end (episode of two
steps; s is an observation, s0' the next episode's first one):

    NEXT_STEP   s0 -> s1 -> s2, end | action ignored -> s0', reward 0 | -> s1'
    SAME_STEP   s0 -> s1 -> s0', end, s2 in infos["final_obs"]        | -> s1'
    DISABLED    s0 -> s1 -> s2, end, then the caller resets           | -> s1'

and what comes out of all three adapters: s0 -> s1 -> s2 (final), then s0' -> s1'.
See https://farama.org/Vector-Autoreset-Mode.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv
from numpy.typing import NDArray

from mycelia_actor.environments.spaces import Columns, action_columns, observation_columns
from mycelia_actor.environments.vector import (
    EpisodeStatistics,
    Observation,
    StepResult,
    VectorEnvironment,
)

Vector = VectorEnv[Any, Any, Any]
Flags = NDArray[np.bool_]


class UnknownAutoresetModeError(ValueError):
    """A vector environment that does not say how it resets itself."""


def adapt(vector: Vector) -> VectorEnvironment:
    """Returns a vector environment behind the adapter for its autoreset mode. Takes ownership.

    Raises:
      UnknownAutoresetModeError: its `metadata["autoreset_mode"]` is not one of Gymnasium's.
    """
    mode = vector.metadata.get("autoreset_mode")
    adapter = _ADAPTERS.get(mode) if isinstance(mode, AutoresetMode) else None
    if adapter is None:
        raise UnknownAutoresetModeError(
            f"{vector}: metadata['autoreset_mode'] is {mode!r}, expected one of "
            f"{', '.join(str(known) for known in _ADAPTERS)}"
        )
    return adapter(vector)


class _Adapter:
    """What the adapters share."""

    def __init__(self, vector: Vector) -> None:
        self._vector = vector
        self.count = vector.num_envs
        self.observation = observation_columns(vector.single_observation_space)
        self.action = action_columns(vector.single_action_space)
        self._statistics = EpisodeStatistics(self.count)
        self._all = np.ones(self.count, np.bool_)

    def reset(self, seeds: Sequence[int]) -> Observation:
        """Starts new episodes; N seeds. A native vector environment takes the first for all."""
        batch = self._reset_vector(seeds)
        self._statistics = EpisodeStatistics(self.count)
        return Observation(self._encode(batch), self._all, self._all)

    def close(self) -> None:
        """Closes the environments."""
        self._vector.close()

    def _encode(self, batch: Any) -> Columns:
        return self.observation.encode_batch(batch)

    def _reset_vector(self, seeds: Sequence[int]) -> Any:
        one_each = isinstance(self._vector, SyncVectorEnv | AsyncVectorEnv)
        seed: Any = list(seeds) if one_each else seeds[0]
        return self._vector.reset(seed=seed)[0]

    def _step(self, action: Columns) -> tuple[Columns, NDArray[np.float64], Flags, Flags, Any]:
        batch, reward, terminated, truncated, infos = self._vector.step(
            self.action.decode_batch(action)
        )
        return (
            self._encode(batch),
            np.array(reward, np.float64),
            np.array(terminated, np.bool_),
            np.array(truncated, np.bool_),
            infos,
        )

    def _result(
        self,
        observation: Observation,
        *,
        reward: NDArray[np.float64],
        terminated: Flags,
        truncated: Flags,
        final_observation: Callable[[NDArray[np.int64]], Columns],
        stepped: Flags | None = None,
        life_lost: Flags | None = None,
    ) -> StepResult:
        ended = np.flatnonzero(terminated | truncated)
        over = ended if life_lost is None else ended[~life_lost[ended]]
        self._statistics.add(reward, 1 if stepped is None else stepped)
        returns, lengths = self._statistics.finish(over)
        return StepResult(
            observation=observation,
            reward=reward,
            terminated=terminated,
            truncated=truncated,
            step_count=self.count if stepped is None else int(np.count_nonzero(stepped)),
            ended=ended,
            final_observation=final_observation(ended) if ended.size else {},
            episode_returns=returns,
            episode_lengths=lengths,
            over=None if life_lost is None else over,
        )


class NextStepEnvironments(_Adapter):
    """Resets in the step after the end; that step is masked. A `VectorEnvironment`."""

    def __init__(self, vector: Vector) -> None:
        """Takes ownership of a vector environment in mode NEXT_STEP."""
        super().__init__(vector)
        self._ready = self._all

    def reset(self, seeds: Sequence[int]) -> Observation:
        """Starts new episodes; N seeds. A native vector environment takes the first for all."""
        self._ready = self._all
        return super().reset(seeds)

    def step(self, action: Columns) -> StepResult:
        """Takes one step in every environment that is ready, and resets the others."""
        stepped = self._ready
        columns, reward, terminated, truncated, _ = self._step(action)
        # What a resetting environment returns belongs to no transition.
        reward *= stepped
        terminated &= stepped
        truncated &= stepped
        self._ready = ~(terminated | truncated)
        return self._result(
            Observation(columns, first=~stepped, ready=self._ready),
            reward=reward,
            terminated=terminated,
            truncated=truncated,
            final_observation=lambda ended: take_rows(columns, ended),
            stepped=stepped,
        )


class SameStepEnvironments(_Adapter):
    """Resets in the step of the end; the final observation is in the infos.

    A `VectorEnvironment`. Gymnasium keeps the final observation without copying
    it, so an environment that reuses its observation buffer loses it in this mode.
    """

    def step(self, action: Columns) -> StepResult:
        """Takes one step in every environment; actions are columns `[N, ...]`."""
        columns, reward, terminated, truncated, infos = self._step(action)
        return self._result(
            Observation(columns, first=terminated | truncated, ready=self._all),
            reward=reward,
            terminated=terminated,
            truncated=truncated,
            final_observation=lambda ended: self.observation.encode(
                [infos["final_obs"][slot] for slot in ended]
            ),
        )


class DisabledEnvironments(_Adapter):
    """Never resets by itself; the adapter does, in the step of the end. A `VectorEnvironment`."""

    def step(self, action: Columns) -> StepResult:
        """Takes one step in every environment; actions are columns `[N, ...]`."""
        columns, reward, terminated, truncated, _ = self._step(action)
        ends = terminated | truncated
        return self._result(
            Observation(self._reset(columns, ends), first=ends, ready=self._all),
            reward=reward,
            terminated=terminated,
            truncated=truncated,
            final_observation=lambda ended: take_rows(columns, ended),
        )

    def _reset(self, columns: Columns, ends: Flags) -> Columns:
        if not ends.any():
            return columns
        batch, _ = self._vector.reset(options={"reset_mask": ends.copy()})
        fresh = self.observation.encode_batch(batch)
        merged = {name: column.copy() for name, column in columns.items()}
        for name, column in merged.items():
            column[ends] = fresh[name][ends]
        return merged


def take_rows(columns: Columns, slots: NDArray[np.int64]) -> Columns:
    """Returns the rows of environments `slots` [E], `[E, ...]`."""
    return {name: column[slots] for name, column in columns.items()}


_ADAPTERS: dict[AutoresetMode, Callable[[Vector], VectorEnvironment]] = {
    AutoresetMode.NEXT_STEP: NextStepEnvironments,
    AutoresetMode.SAME_STEP: SameStepEnvironments,
    AutoresetMode.DISABLED: DisabledEnvironments,
}
