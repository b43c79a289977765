"""Turns steps into rows, and hands them on with their priorities once those are known."""

from collections import deque
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from mycelia_actor.environments.spaces import Columns, SpaceColumns
from mycelia_actor.environments.vector import Observation, StepResult
from mycelia_actor.n_step_priorities import NStepPriorities
from mycelia_actor.policies.policy import ActionChoice, Policy
from mycelia_core.specs import FIRST, POLICY_VERSION, REWARD, TERMINATED, TRUNCATED


class RowSink(Protocol):
    """Where rows go: the trajectory writer, or a list in a test."""

    def append(
        self,
        columns: Columns,
        *,
        streams: NDArray[np.int64] | None = None,
        priorities: NDArray[np.float64] | None = None,
    ) -> None:
        """Appends one row to each of these streams, or to all; columns are `[n, ...]`."""

    def drop(self, stream: int) -> None:
        """Forgets what has not been sent of the stream's running episode."""


@dataclass(slots=True)
class _StepRows:
    """The rows of one step, and the last rows of the episodes that it ended."""

    columns: Columns
    """`[N, ...]`"""

    streams: NDArray[np.int64] | None
    """[n] the environments that took the step; None if all did."""

    ended: NDArray[np.int64]
    """[E]"""

    final_columns: Columns
    """`[E, ...]`"""

    def drop(self, slot: int) -> bool:
        """Takes out the row of a slot; returns whether it was an episode's first."""
        if self.streams is None:
            self.streams = np.arange(len(self.columns[FIRST]))
        self.streams = self.streams[self.streams != slot]
        return bool(self.columns[FIRST][slot])


class Recorder:
    """Records what N environments do as rows of N streams. One thread owns it.

    With priorities, the rows of a step are held back for n steps, until the
    window that begins with them is complete; the order within a stream stays.
    """

    def __init__(
        self,
        sink: RowSink,
        policy: Policy,
        action: SpaceColumns,
        priorities: NStepPriorities | None = None,
        *,
        first_slot: int | None = None,
        clip_rewards: bool = False,
        drops_failed: bool = False,
    ) -> None:
        """Records into `sink`; without `priorities`, at once and without any.

        Args:
          sink: where rows go.
          policy: who values final observations.
          action: how the action's columns look.
          priorities: what computes initial priorities.
          first_slot: the number of the first environment's stream, if these are
            not all environments of the sink.
          clip_rewards: whether only the sign of rewards is recorded.
          drops_failed: whether the episode of a failed environment is dropped,
            as far as it has not been sent, and not ended.
        """
        self._sink = sink
        self._first_slot = first_slot or 0
        self._is_part = first_slot is not None
        self._clip_rewards = clip_rewards
        self._drops_failed = drops_failed
        self._policy = policy
        self._action = action
        self._priorities = priorities
        self._held: deque[_StepRows] = deque()

    def record(self, observation: Observation, choice: ActionChoice, result: StepResult) -> None:
        """Records one step: what was seen, what was done, what came of it."""
        reward = np.sign(result.reward) if self._clip_rewards else result.reward
        if result.failed is not None:
            self._end_failed(observation, choice, result.failed)
        rows = self._rows(observation, choice, result, reward)
        if self._priorities is None:
            self._send(rows, None)
            return
        if len(self._held) == self._priorities.n:
            self._send(self._held.popleft(), self._priorities.close(_known(choice.q_max)))
        self._priorities.open(_known(choice.q_taken))
        self._priorities.add(reward)
        if result.ended.size:
            self._priorities.end(result.ended, self._final_value(result))
        self._held.append(rows)

    def flush(self) -> None:
        """Sends the rows that are held back, their priorities not known."""
        while self._held:
            rows = self._held.popleft()
            self._send(rows, np.full(len(rows.columns[REWARD]), np.nan))

    def _end_failed(
        self, observation: Observation, choice: ActionChoice, failed: NDArray[np.int64]
    ) -> None:
        """Ends the episodes of environments that failed, with what they showed last."""
        # Who failed in an episode's first step has nothing recorded that could end.
        failed = failed[~observation.first[failed]]
        if not failed.size:
            return
        if self._priorities is not None:
            bootstrap = np.broadcast_to(_known(choice.q_max), len(observation.first))[failed]
            self._priorities.end(failed, bootstrap)
        if self._drops_failed:
            for slot in failed.tolist():
                self._drop(slot)
            return
        seen = {name: column[failed] for name, column in observation.columns.items()}
        cut = np.ones(len(failed), np.bool_)
        last = self._last_rows(seen, choice, terminated=~cut, truncated=cut)
        if self._held:
            newest = self._held[-1]
            newest.final_columns = _joined(newest.final_columns, last)
            newest.ended = np.concatenate((newest.ended, failed))
        else:
            self._sink.append(last, streams=failed + self._first_slot)

    def _drop(self, slot: int) -> None:
        for rows in reversed(self._held):
            if rows.drop(slot):
                return
        self._sink.drop(slot + self._first_slot)

    def _rows(
        self,
        observation: Observation,
        choice: ActionChoice,
        result: StepResult,
        reward: NDArray[np.float64],
    ) -> _StepRows:
        count = len(reward)
        stepped = observation.ready if result.stepped is None else result.stepped
        return _StepRows(
            columns={
                **observation.columns,
                **choice.action,
                REWARD: reward.astype(np.float32),
                FIRST: observation.first,
                # An end belongs to the episode's last row, the one after this step's.
                TERMINATED: np.zeros(count, np.bool_),
                TRUNCATED: np.zeros(count, np.bool_),
                POLICY_VERSION: np.full(count, choice.policy_version, np.int64),
            },
            streams=(None if result.step_count == count else np.flatnonzero(stepped)),
            ended=result.ended,
            final_columns=self._final_rows(choice, result) if result.ended.size else {},
        )

    def _final_rows(self, choice: ActionChoice, result: StepResult) -> Columns:
        return self._last_rows(
            result.final_observation,
            choice,
            terminated=result.terminated[result.ended],
            truncated=result.truncated[result.ended],
        )

    def _last_rows(
        self,
        seen: Columns,
        choice: ActionChoice,
        *,
        terminated: NDArray[np.bool_],
        truncated: NDArray[np.bool_],
    ) -> Columns:
        count = len(terminated)
        return {
            **seen,
            **self._action.zeros(count),
            REWARD: np.zeros(count, np.float32),
            FIRST: np.zeros(count, np.bool_),
            TERMINATED: terminated,
            TRUNCATED: truncated,
            POLICY_VERSION: np.full(count, choice.policy_version, np.int64),
        }

    def _final_value(self, result: StepResult) -> NDArray[np.floating[Any]]:
        """Returns what final observations are worth, [E]: nothing where terminated."""
        bootstrap = np.zeros(len(result.ended))
        goes_on = ~result.terminated[result.ended]
        if goes_on.any():
            cut = {name: column[goes_on] for name, column in result.final_observation.items()}
            slots = result.ended[goes_on] + self._first_slot
            bootstrap[goes_on] = _known(self._policy.greedy_value(cut, slots))
        return bootstrap

    def _send(self, rows: _StepRows, priorities: NDArray[np.float64] | None) -> None:
        columns, streams = rows.columns, rows.streams
        if streams is not None:
            columns = {name: column[streams] for name, column in columns.items()}
            priorities = None if priorities is None else priorities[streams]
        if streams is None or streams.size:
            self._sink.append(columns, streams=self._named(streams, columns), priorities=priorities)
        if rows.ended.size:
            # No item begins at an episode's last row, so its priority is nobody's.
            unknown = None if priorities is None else np.full(len(rows.ended), np.nan)
            ended = rows.ended + self._first_slot
            self._sink.append(rows.final_columns, streams=ended, priorities=unknown)

    def _named(self, streams: NDArray[np.int64] | None, columns: Columns) -> Any:
        if not self._is_part:
            return streams
        slots = np.arange(len(columns[REWARD])) if streams is None else streams
        return slots + self._first_slot


def _joined(one: Columns, other: Columns) -> Columns:
    if not one:
        return other
    return {name: np.concatenate((column, other[name])) for name, column in one.items()}


def _known(values: NDArray[np.floating[Any]] | None) -> Any:
    """Returns the values, or NaN for ones that the policy could not give."""
    return np.nan if values is None else values
