"""Groups stepped together, for those who want one vector environment."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from mycelia_actor.environments.group import Group, nobody_stepped, wait_for_any
from mycelia_actor.environments.spaces import Columns
from mycelia_actor.environments.vector import Observation, StepResult, join

_WAIT_SECONDS = 0.5


class JoinedGroups:
    """All groups in lock-step. A `VectorEnvironment`.

    A group whose process is being started again is not waited for: its
    environments are not ready meanwhile.
    """

    def __init__(self, groups: Sequence[Group]) -> None:
        """Takes ownership of the groups, in the order of their slots."""
        self._groups = list(groups)
        self.groups: Sequence[Group] = self._groups
        """For those who take each as it comes."""
        self.count = sum(group.count for group in groups)
        self.observation, self.action = groups[0].observation, groups[0].action
        self._seen: list[Observation] = []

    def reset(self, seeds: Sequence[int]) -> Observation:
        """Starts new episodes; N seeds, one for each environment."""
        for group in self._groups:
            group.begin_reset(seeds[group.first_slot : group.first_slot + group.count])
        results = self._wait(list(range(len(self._groups))))
        self._seen = [results[index].observation for index in sorted(results)]
        return _join_observations(self._seen)

    def step(self, action: Columns) -> StepResult:
        """Takes one step in every environment that works."""
        begun = [index for index, group in enumerate(self._groups) if group.waits]
        starting = [index for index, group in enumerate(self._groups) if not group.waits]
        for index in begun:
            group = self._groups[index]
            rows = slice(group.first_slot, group.first_slot + group.count)
            group.begin({name: column[rows] for name, column in action.items()})
        if not begun:
            wait_for_any(self._groups, _WAIT_SECONDS)
        results = self._wait(begun) | self._poll(starting)
        parts = [
            results.get(index) or nobody_stepped(seen) for index, seen in enumerate(self._seen)
        ]
        self._seen = [part.observation for part in parts]
        return _join_results(parts)

    def close(self) -> None:
        """Closes the environments."""
        for group in self._groups:
            group.close()

    def _wait(self, indices: Sequence[int]) -> dict[int, StepResult]:
        results: dict[int, StepResult] = {}
        while missing := [index for index in indices if index not in results]:
            wait_for_any([self._groups[index] for index in missing], _WAIT_SECONDS)
            results |= self._poll(missing)
        return results

    def _poll(self, indices: Sequence[int]) -> dict[int, StepResult]:
        found = {index: self._groups[index].poll() for index in indices}
        return {index: result for index, result in found.items() if result is not None}


def _join_observations(parts: Sequence[Observation]) -> Observation:
    return Observation(
        join([part.columns for part in parts]),
        np.concatenate([part.first for part in parts]),
        np.concatenate([part.ready for part in parts]),
    )


def _join_results(parts: Sequence[StepResult]) -> StepResult:
    starts = np.cumsum([0, *(len(part.reward) for part in parts)])[:-1].tolist()
    overs = [part.ended if part.over is None else part.over for part in parts]
    failed = _join_slots(starts, [part.failed for part in parts])
    return StepResult(
        observation=_join_observations([part.observation for part in parts]),
        reward=np.concatenate([part.reward for part in parts]),
        terminated=np.concatenate([part.terminated for part in parts]),
        truncated=np.concatenate([part.truncated for part in parts]),
        step_count=sum(part.step_count for part in parts),
        ended=_join_slots(starts, [part.ended for part in parts]),
        final_observation=join([part.final_observation for part in parts if part.ended.size]),
        episode_returns=np.concatenate([part.episode_returns for part in parts]),
        episode_lengths=np.concatenate([part.episode_lengths for part in parts]),
        stepped=np.concatenate([_stepped(part) for part in parts]),
        failed=failed if failed.size else None,
        over=_join_slots(starts, overs),
    )


def _stepped(part: StepResult) -> NDArray[np.bool_]:
    return np.ones(len(part.reward), np.bool_) if part.stepped is None else part.stepped


def _join_slots(
    starts: Sequence[int], parts: Sequence[NDArray[np.int64] | None]
) -> NDArray[np.int64]:
    known = [slots + start for start, slots in zip(starts, parts, strict=True) if slots is not None]
    return np.concatenate(known) if known else np.zeros(0, np.int64)
