"""The actor's loop over groups of environments: it acts for one half while the other steps."""

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from mycelia_actor.environments.group import Group, wait_for_any
from mycelia_actor.environments.spaces import Columns
from mycelia_actor.environments.vector import Observation, StepResult, join
from mycelia_actor.loop import Reporter
from mycelia_actor.policies.policy import ActionChoice, Policy
from mycelia_actor.recorder import Recorder
from mycelia_core.specs import FIRST
from mycelia_core.weights import Weights

_WAIT_SECONDS = 0.1
"""How soon a wait for environments notices that it is to end."""


@dataclass(slots=True)
class _Seat:
    """A group, its recorder, and what was seen and chosen for the step under way."""

    group: Group
    recorder: Recorder
    observation: Observation | None = None
    choice: ActionChoice | None = None


class GroupedLoop:
    """Acts in groups of environments and records what happens. One thread owns it.

    While some groups step, in their processes or threads, actions are chosen for
    others and what they gave is recorded and sent:

        group 0   step . . . . | act | step . . . .
        group 1        | act | step . . . . | act |

    Of many small groups, those that come first are acted for together, about half
    of all environments: a network takes much longer over single observations. Who
    is slow is not waited for longer than the last choice of actions took, and
    holds up its own group only.
    """

    def __init__(
        self,
        groups: Sequence[Group],
        policy: Policy,
        recorders: Sequence[Recorder],
        newest_weights: Callable[[], Weights | None],
        reporter: Reporter,
    ) -> None:
        """Connects the parts; `recorders` has one for each group. See `ActingLoop`."""
        self._seats = [
            _Seat(group, recorder) for group, recorder in zip(groups, recorders, strict=True)
        ]
        self._policy = policy
        self._newest_weights = newest_weights
        self._reporter = reporter
        self._version = 0
        self._waiting: list[_Seat] = []
        """Whose turn it is to be acted for, in order."""
        self._half = (sum(group.count for group in groups) + 1) // 2
        self._act_seconds = 0.0
        self._act_by = 0.0

    def run(self, seeds: Sequence[int], stop: threading.Event) -> None:
        """Acts until `stop` is set; N seeds, one for each environment.

        Raises: what `Group.poll` and the recorder's sink raise.
        """
        for seat in self._seats:
            first = seat.group.first_slot
            seat.group.begin_reset(seeds[first : first + seat.group.count])
        while not stop.is_set():
            arrived = self._poll(self._patience())
            for seat, result in arrived:
                self._take(seat, result)
            if self._waiting and not self._patience():
                self._refresh_weights()
                self._act(self._next_half())

    def _patience(self) -> float:
        """Returns for how many seconds to wait for more before it acts."""
        if not self._waiting:
            return _WAIT_SECONDS
        if sum(seat.group.count for seat in self._waiting) >= self._half:
            return 0.0
        # In whole milliseconds, as fine as a poll can wait.
        return max(0.0, (self._act_by - time.monotonic()) * 1000 // 1 / 1000)

    def _poll(self, seconds: float) -> list[tuple[_Seat, StepResult]]:
        wait_for_any([seat.group for seat in self._seats], seconds)
        polled = [(seat, seat.group.poll()) for seat in self._seats]
        return [(seat, result) for seat, result in polled if result is not None]

    def _take(self, seat: _Seat, result: StepResult) -> None:
        if seat.observation is not None and seat.choice is not None:
            seat.recorder.record(seat.observation, seat.choice, result)
            self._reporter.add(seat.choice, result)
        seat.observation, seat.choice = result.observation, None
        if seat.group.waits:
            if not self._waiting:
                self._act_by = time.monotonic() + self._act_seconds
            self._waiting.append(seat)

    def _next_half(self) -> list[_Seat]:
        """Takes from the waiting seats as many as make up half of the environments."""
        taken, count = [], 0
        while self._waiting and count < self._half:
            taken.append(self._waiting.pop(0))
            count += taken[-1].group.count
        self._act_by = time.monotonic() + self._act_seconds
        return taken

    def _act(self, seats: Sequence[_Seat]) -> None:
        start = time.monotonic()
        choices = self._choose(seats)
        self._act_seconds = time.monotonic() - start
        for seat, choice in zip(seats, choices, strict=True):
            seat.choice = choice
            seat.group.begin(choice.action)

    def _choose(self, seats: Sequence[_Seat]) -> list[ActionChoice]:
        slots = [seat.group.first_slot + np.arange(seat.group.count) for seat in seats]
        choice = self._policy.act(join([_seen(seat) for seat in seats]), np.concatenate(slots))
        starts = np.cumsum([0, *(seat.group.count for seat in seats)]).tolist()
        return [
            _part(choice, slice(start, start + seat.group.count))
            for start, seat in zip(starts, seats, strict=False)
        ]

    def _refresh_weights(self) -> None:
        weights = self._newest_weights()
        if weights is not None and weights.version != self._version:
            self._policy.use(weights)
            self._version = weights.version


def _seen(seat: _Seat) -> Columns:
    assert seat.observation is not None
    return {**seat.observation.columns, FIRST: seat.observation.first}


def _part(choice: ActionChoice, rows: slice) -> ActionChoice:
    return ActionChoice(
        {name: column[rows] for name, column in choice.action.items()},
        None if choice.q_taken is None else choice.q_taken[rows],
        None if choice.q_max is None else choice.q_max[rows],
        choice.policy_version,
    )
