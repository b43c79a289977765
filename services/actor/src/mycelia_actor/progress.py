"""What an actor reports with its heartbeats."""

import time
from collections.abc import Callable, Mapping
from typing import Protocol

from mycelia_actor.environments.vector import StepResult
from mycelia_actor.policies.policy import ActionChoice
from mycelia_core.metrics import Rate

REPORT_SECONDS = 0.2
"""How far apart counters are set; heartbeats take them from there."""


class Register(Protocol):
    """Where counters and episodes go: the membership of the run."""

    def set_counters(self, counters: Mapping[str, float]) -> None:
        """Sets counters by glossary name."""

    def add_episode(self, episode_return: float, length: int) -> None:
        """Adds a finished training episode."""


class Progress:
    """Counts steps and episodes of an actor. The loop's thread owns it."""

    def __init__(
        self, register: Register, wait_seconds: Callable[[], float], epsilon_mean: float
    ) -> None:
        """Reports to `register`; `wait_seconds` returns how long inserts have waited so far."""
        self._register = register
        self._wait_seconds = wait_seconds
        self._epsilon_mean = epsilon_mean
        self._rate = Rate()
        self._next_report = 0.0
        self._policy_version = 0
        self.env_steps = 0
        self.episodes = 0

    def add(self, choice: ActionChoice, result: StepResult) -> None:
        """Counts one step of all environments, and reports now and then."""
        self.env_steps += result.step_count
        self._policy_version = choice.policy_version
        if result.ended.size:
            self._add_episodes(result)
        if time.monotonic() >= self._next_report:
            self.report()

    def report(self) -> None:
        """Sets the counters now."""
        now = time.monotonic()
        self._next_report = now + REPORT_SECONDS
        self._register.set_counters(
            {
                "env_steps": self.env_steps,
                "env_steps_per_second": self._rate.update(self.env_steps, now),
                "episodes": self.episodes,
                "policy_version": self._policy_version,
                "insert_wait_seconds": self._wait_seconds(),
                "epsilon": self._epsilon_mean,
            }
        )

    def _add_episodes(self, result: StepResult) -> None:
        self.episodes += len(result.episode_returns)
        lengths = result.episode_lengths.tolist()
        for episode_return, length in zip(result.episode_returns.tolist(), lengths, strict=True):
            self._register.add_episode(episode_return, length)
