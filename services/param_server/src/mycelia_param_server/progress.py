"""How a run is doing: training episodes and greedy evaluations."""

import math
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, replace

from mycelia_core.rpc.errors import InvalidArgumentError

MAX_RECENT_EPISODES = 100
MAX_EVALUATIONS = 1_000
MAX_EVALUATION_RETURNS = 200_000
"""How many returns all remembered evaluations have together: what fits a message."""


@dataclass(frozen=True)
class Episode:
    """One finished training episode."""

    episode_return: float
    """Not discounted and not clipped."""

    length: int
    """In environment steps."""


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """One greedy evaluation."""

    policy_version: int
    learner_step: int
    env_steps: int
    """The run's, when the evaluation began."""

    episode_returns: tuple[float, ...]
    record_time: float = 0.0
    """When it was taken in, in seconds since 1970."""


class Progress:
    """The episodes and evaluations of one run. One event loop owns it."""

    def __init__(self) -> None:
        """Starts with none of either."""
        self.episode_count = 0
        self.recent_episodes: deque[Episode] = deque(maxlen=MAX_RECENT_EPISODES)
        self._evaluations: dict[int, Evaluation] = {}

    @property
    def evaluations(self) -> list[Evaluation]:
        """The last evaluations, oldest first."""
        return list(self._evaluations.values())

    def add_episodes(self, episodes: Iterable[Episode]) -> None:
        """Counts training episodes."""
        for episode in episodes:
            self.recent_episodes.append(episode)
            self.episode_count += 1

    def record(self, evaluation: Evaluation, record_time: float) -> None:
        """Takes in an evaluation; a second one of the same version changes nothing.

        Raises:
          InvalidArgumentError: the version is negative, or the returns are none,
            too many or not finite.
        """
        _check(evaluation)
        if evaluation.policy_version in self._evaluations:
            return
        self._evaluations[evaluation.policy_version] = replace(evaluation, record_time=record_time)
        while self._is_full():
            del self._evaluations[next(iter(self._evaluations))]

    def _is_full(self) -> bool:
        returns = sum(len(e.episode_returns) for e in self._evaluations.values())
        return len(self._evaluations) > MAX_EVALUATIONS or returns > MAX_EVALUATION_RETURNS


def check_episodes(episodes: Iterable[Episode]) -> None:
    """Refuses episodes that cannot have been.

    Raises:
      InvalidArgumentError: a return is not finite, or a length is negative.
    """
    for episode in episodes:
        if not math.isfinite(episode.episode_return) or episode.length < 0:
            raise InvalidArgumentError(
                f"episodes: expected a finite return and a length from 0 up, got "
                f"{episode.episode_return} and {episode.length}"
            )


def _check(evaluation: Evaluation) -> None:
    returns = evaluation.episode_returns
    if evaluation.policy_version < 0:
        raise InvalidArgumentError(
            f"evaluation.policy_version: got {evaluation.policy_version}, expected 0 or more"
        )
    if not 0 < len(returns) <= MAX_EVALUATION_RETURNS:
        raise InvalidArgumentError(
            f"evaluation.episode_returns: got {len(returns)}, "
            f"expected 1 to {MAX_EVALUATION_RETURNS}"
        )
    if not all(math.isfinite(episode_return) for episode_return in returns):
        raise InvalidArgumentError("evaluation.episode_returns: one is not finite")
