"""Groups of environments that are stepped on their own, and waiting for whichever comes first."""

import select
import time
from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from mycelia_actor.environments.spaces import Columns, SpaceColumns
from mycelia_actor.environments.vector import Observation, StepResult


class Group(Protocol):
    """Some of an actor's environments. One thread owns it.

    Either it has a step or reset under way, whose result `poll` returns once, or
    it waits for `begin`.
    """

    observation: SpaceColumns
    action: SpaceColumns
    count: int
    first_slot: int
    """The number of its first environment among the actor's."""

    @property
    def waits(self) -> bool:
        """Whether it waits for `begin`."""

    def begin_reset(self, seeds: Sequence[int]) -> None:
        """Begins new episodes; `poll` returns a result in which nobody stepped."""

    def begin(self, action: Columns) -> None:
        """Begins a step; actions are columns `[count, ...]`."""

    def poll(self) -> StepResult | None:
        """Returns what was begun, if it has come; never waits.

        Raises:
          EnvironmentFailedError: an environment failed too often.
          ActionMaskError: a mask is missing or allows nothing.
        """

    def fileno(self) -> int:
        """Returns a descriptor that is readable when `poll` has something; -1 for none."""

    def deadline(self) -> float:
        """Returns when `poll` is to be called at the latest, as `time.monotonic` counts."""

    def close(self) -> None:
        """Closes the environments."""


def wait_for_any(groups: Sequence[Group], seconds: float) -> None:
    """Waits until one of the groups may have something, at most `seconds`."""
    poll = select.poll()
    end = time.monotonic() + seconds
    for group in groups:
        if group.fileno() >= 0:
            poll.register(group.fileno(), select.POLLIN)
        end = min(end, group.deadline())
    poll.poll(max(0.0, end - time.monotonic()) * 1000)


def nobody_stepped(observation: Observation, failed: NDArray[np.int64] | None = None) -> StepResult:
    """Returns a result without any step: after a reset, or when environments have failed."""
    count = len(observation.first)
    nobody = np.zeros(count, np.bool_)
    none = np.zeros(0, np.int64)
    return StepResult(
        observation=observation,
        reward=np.zeros(count),
        terminated=nobody,
        truncated=nobody,
        step_count=0,
        ended=none,
        final_observation={},
        episode_returns=np.zeros(0),
        episode_lengths=none,
        stepped=nobody,
        failed=failed,
    )
