"""Rollouts: T steps of N environments with one version of the weights."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from mycelia_actor.environments.vector import Observation, StepResult, VectorEnvironment
from mycelia_actor.gradients.spaces import action_writer, observation_reader
from mycelia_actor.loop import Reporter
from mycelia_actor.policies.policy import ActionChoice
from mycelia_algorithms.gradient_source import GradientSource
from mycelia_algorithms.networks.actor_critic import State
from mycelia_algorithms.rollout import Rollout

Array = NDArray[Any]


class RolloutCollector:
    """Lets a source act in environments and takes down what happens. One thread owns it."""

    def __init__(
        self,
        environments: VectorEnvironment,
        source: GradientSource,
        seeds: Sequence[int],
        reporter: Reporter,
        *,
        clip_rewards: bool = False,
    ) -> None:
        """Starts an episode in each environment.

        Args:
          environments: where it acts.
          source: who acts.
          seeds: N, one for each environment.
          reporter: is told of each step.
          clip_rewards: whether only the sign of rewards is learned from.
        """
        self._clip_rewards = clip_rewards
        self._environments = environments
        self._source = source
        self._reporter = reporter
        self._read = observation_reader(environments.observation)
        self._write = action_writer(environments.action)
        self._observation = environments.reset(seeds)
        self._state: State | None = None

    def collect(self, policy_version: int) -> Rollout:
        """Acts for `source.rollout_steps` steps with the weights that the source has now."""
        rows = _Rows(self._source.rollout_steps, self._environments.count)
        before = self._state
        for t in range(self._source.rollout_steps):
            self._step(rows, t, policy_version)
        rows.end(self._source.value(*self._now()))
        return rows.rollout(before)

    def _step(self, rows: "_Rows", t: int, policy_version: int) -> None:
        seen, before = self._observation, self._state
        observation, first = self._read(seen.columns), seen.first
        action, self._state = self._source.act(
            torch.from_numpy(observation), torch.from_numpy(first), self._state
        )
        chosen = action.numpy()
        columns = self._write(chosen)
        result = self._environments.step(columns)
        rows.put(t, seen, observation, chosen, result)
        if self._clip_rewards:
            rows.clip(t)
        if result.truncated.any():
            self._bootstrap(rows, t, result)
        if result.failed is not None and result.failed.size:
            value = self._source.value(torch.from_numpy(observation), before)
            rows.cut_before(t, result.failed, value.numpy())
        self._observation = result.observation
        self._reporter.add(ActionChoice(columns, policy_version=policy_version), result)

    def _bootstrap(self, rows: "_Rows", t: int, result: StepResult) -> None:
        cut = result.truncated[result.ended]
        final = self._read(result.final_observation)[cut]
        slots = result.ended[cut]
        state = self._state
        if state is not None:
            # The final observation follows on from this step's state, not from a new episode's.
            state = (state[0][slots], state[1][slots])
        rows.bootstrap_value[t, slots] = self._source.value(torch.from_numpy(final), state).numpy()

    def _now(self) -> tuple[torch.Tensor, State | None]:
        return torch.from_numpy(self._read(self._observation.columns)), self._state


class _Rows:
    """The arrays of one rollout, filled row by row."""

    def __init__(self, steps: int, count: int) -> None:
        shape = (steps, count)
        self._observation: Array | None = None
        self._action: Array | None = None
        self._first = np.empty(shape, np.bool_)
        self._valid = np.empty(shape, np.bool_)
        self._reward = np.empty(shape, np.float32)
        self._terminated = np.empty(shape, np.bool_)
        self._truncated = np.empty(shape, np.bool_)
        self.bootstrap_value = np.zeros(shape, np.float32)

    def put(
        self, t: int, seen: Observation, observation: Array, action: Array, result: StepResult
    ) -> None:
        if self._observation is None or self._action is None:
            steps = len(self._first)
            self._observation = np.empty((steps, *observation.shape), observation.dtype)
            self._action = np.empty((steps, *action.shape), action.dtype)
        self._observation[t] = observation
        self._action[t] = action
        self._first[t] = seen.first
        self._valid[t] = seen.ready if result.stepped is None else result.stepped
        self._reward[t] = result.reward
        self._terminated[t] = result.terminated
        self._truncated[t] = result.truncated

    def clip(self, t: int) -> None:
        np.sign(self._reward[t], out=self._reward[t])

    def cut_before(self, t: int, slots: NDArray[np.int64], value: Array) -> None:
        # What failed instead of stepping: what it showed in row t was its episode's last.
        self._valid[t, slots] = False
        if t == 0:
            return
        for slot in slots:
            if not (self._terminated[t - 1, slot] or self._truncated[t - 1, slot]):
                self._truncated[t - 1, slot] = True
                self.bootstrap_value[t - 1, slot] = value[slot]

    def end(self, value: torch.Tensor) -> None:
        # A cut episode's final observation has its value already.
        last = self.bootstrap_value[-1]
        last[:] = np.where(self._truncated[-1], last, value.numpy())

    def rollout(self, state: State | None) -> Rollout:
        assert self._observation is not None
        assert self._action is not None
        return Rollout(
            observation=torch.from_numpy(self._observation),
            first=torch.from_numpy(self._first),
            valid=torch.from_numpy(self._valid),
            action=torch.from_numpy(self._action),
            reward=torch.from_numpy(self._reward),
            terminated=torch.from_numpy(self._terminated),
            truncated=torch.from_numpy(self._truncated),
            bootstrap_value=torch.from_numpy(self.bootstrap_value),
            state=state,
        )
