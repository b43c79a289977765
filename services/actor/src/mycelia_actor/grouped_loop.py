"""The actor's loop over groups of environments: it acts for whichever group comes first."""

import threading
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

    While one group steps, in its process or thread, actions are chosen for
    another and what it gave is recorded and sent; so a slow environment holds up
    its own group only. Groups that come together are acted for together:

        group 0   step . . . . | act | step . . . .
        group 1        | act | step . . . . | act |
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

    def run(self, seeds: Sequence[int], stop: threading.Event) -> None:
        """Acts until `stop` is set; N seeds, one for each environment.

        Raises: what `Group.poll` and the recorder's sink raise.
        """
        for seat in self._seats:
            first = seat.group.first_slot
            seat.group.begin_reset(seeds[first : first + seat.group.count])
        while not stop.is_set():
            arrived = self._wait()
            for seat, result in arrived:
                self._take(seat, result)
            waiting = [seat for seat, _ in arrived if seat.group.waits]
            if waiting:
                self._refresh_weights()
                self._act(waiting)

    def _wait(self) -> list[tuple[_Seat, StepResult]]:
        wait_for_any([seat.group for seat in self._seats], _WAIT_SECONDS)
        polled = [(seat, seat.group.poll()) for seat in self._seats]
        return [(seat, result) for seat, result in polled if result is not None]

    def _take(self, seat: _Seat, result: StepResult) -> None:
        if seat.observation is not None and seat.choice is not None:
            seat.recorder.record(seat.observation, seat.choice, result)
            self._reporter.add(seat.choice, result)
        seat.observation, seat.choice = result.observation, None

    def _act(self, seats: Sequence[_Seat]) -> None:
        choices = self._choose(seats)
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
