"""The actor's loop."""

import threading
from collections.abc import Callable, Sequence
from typing import Protocol

from mycelia_actor.environments.vector import Observation, StepResult, VectorEnvironment
from mycelia_actor.policies.policy import ActionChoice, Policy
from mycelia_actor.recorder import Recorder
from mycelia_core.specs import FIRST
from mycelia_core.weights import Weights


class Reporter(Protocol):
    """Who is told what every step gave."""

    def add(self, choice: ActionChoice, result: StepResult) -> None:
        """Counts one step."""


class ActingLoop:
    """Acts in N environments and records what happens. One thread owns it."""

    def __init__(
        self,
        environments: VectorEnvironment,
        policy: Policy,
        recorder: Recorder,
        newest_weights: Callable[[], Weights | None],
        reporter: Reporter,
    ) -> None:
        """Connects the parts.

        Args:
          environments: where it acts.
          policy: who chooses the actions.
          recorder: takes down what happens, and inserts it.
          newest_weights: returns the newest weights there are, without waiting.
          reporter: counts steps and episodes.
        """
        self._environments = environments
        self._policy = policy
        self._recorder = recorder
        self._newest_weights = newest_weights
        self._reporter = reporter
        self._version = 0

    def run(self, seeds: Sequence[int], stop: threading.Event) -> None:
        """Acts until `stop` is set; N seeds, one for each environment."""
        observation = self._environments.reset(seeds)
        while not stop.is_set():
            observation = self._unroll_step(observation)

    def _unroll_step(self, observation: Observation) -> Observation:
        self._refresh_weights()
        choice = self._policy.act({**observation.columns, FIRST: observation.first})
        result = self._environments.step(choice.action)
        self._recorder.record(observation, choice, result)
        self._reporter.add(choice, result)
        return result.observation

    def _refresh_weights(self) -> None:
        weights = self._newest_weights()
        if weights is not None and weights.version != self._version:
            self._policy.use(weights)
            self._version = weights.version
