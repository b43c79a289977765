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


@dataclass(frozen=True, slots=True)
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
    ) -> None:
        """Records into `sink`; without `priorities`, at once and without any."""
        self._sink = sink
        self._policy = policy
        self._action = action
        self._priorities = priorities
        self._held: deque[_StepRows] = deque()

    def record(self, observation: Observation, choice: ActionChoice, result: StepResult) -> None:
        """Records one step: what was seen, what was done, what came of it."""
        rows = self._rows(observation, choice, result)
        if self._priorities is None:
            self._send(rows, None)
            return
        if len(self._held) == self._priorities.n:
            self._send(self._held.popleft(), self._priorities.close(_known(choice.q_max)))
        self._priorities.open(_known(choice.q_taken))
        self._priorities.add(result.reward)
        if result.ended.size:
            self._priorities.end(result.ended, self._final_value(result))
        self._held.append(rows)

    def flush(self) -> None:
        """Sends the rows that are held back, their priorities not known."""
        while self._held:
            rows = self._held.popleft()
            self._send(rows, np.full(len(rows.columns[REWARD]), np.nan))

    def _rows(
        self, observation: Observation, choice: ActionChoice, result: StepResult
    ) -> _StepRows:
        count = len(result.reward)
        return _StepRows(
            columns={
                **observation.columns,
                **choice.action,
                REWARD: result.reward.astype(np.float32),
                FIRST: observation.first,
                # An end belongs to the episode's last row, the one after this step's.
                TERMINATED: np.zeros(count, np.bool_),
                TRUNCATED: np.zeros(count, np.bool_),
                POLICY_VERSION: np.full(count, choice.policy_version, np.int64),
            },
            streams=(None if result.step_count == count else np.flatnonzero(observation.ready)),
            ended=result.ended,
            final_columns=self._final_rows(choice, result) if result.ended.size else {},
        )

    def _final_rows(self, choice: ActionChoice, result: StepResult) -> Columns:
        count = len(result.ended)
        return {
            **result.final_observation,
            **self._action.zeros(count),
            REWARD: np.zeros(count, np.float32),
            FIRST: np.zeros(count, np.bool_),
            TERMINATED: result.terminated[result.ended],
            TRUNCATED: result.truncated[result.ended],
            POLICY_VERSION: np.full(count, choice.policy_version, np.int64),
        }

    def _final_value(self, result: StepResult) -> NDArray[np.floating[Any]]:
        """Returns what final observations are worth, [E]: nothing where terminated."""
        bootstrap = np.zeros(len(result.ended))
        goes_on = ~result.terminated[result.ended]
        if goes_on.any():
            cut = {name: column[goes_on] for name, column in result.final_observation.items()}
            bootstrap[goes_on] = _known(self._policy.greedy_value(cut))
        return bootstrap

    def _send(self, rows: _StepRows, priorities: NDArray[np.float64] | None) -> None:
        columns, streams = rows.columns, rows.streams
        if streams is not None:
            columns = {name: column[streams] for name, column in columns.items()}
            priorities = None if priorities is None else priorities[streams]
        if streams is None or streams.size:
            self._sink.append(columns, streams=streams, priorities=priorities)
        if rows.ended.size:
            # No item begins at an episode's last row, so its priority is nobody's.
            unknown = None if priorities is None else np.full(len(rows.ended), np.nan)
            self._sink.append(rows.final_columns, streams=rows.ended, priorities=unknown)


def _known(values: NDArray[np.floating[Any]] | None) -> Any:
    """Returns the values, or NaN for ones that the policy could not give."""
    return np.nan if values is None else values
