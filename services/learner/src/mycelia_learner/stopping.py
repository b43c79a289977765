"""When a run ends, and with which weights."""

import logging
import statistics
from collections.abc import Callable
from dataclasses import dataclass

from mycelia.run.v1 import run_pb2 as pb
from mycelia_learner.publisher import Snapshot

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Decision:
    """That a run ends, and why."""

    outcome: pb.Outcome.ValueType
    detail: str


@dataclass(frozen=True, slots=True)
class Evaluated:
    """Weights and how they did."""

    return_mean: float
    snapshot: Snapshot


class StoppingRule:
    """Watches evaluations, environment steps and updates.

    One thread observes progress; any may read, and say how many updates there are.

    Attributes:
      decision: set once, when the run is to end.
      best: the weights of the best evaluation so far, later ones preferred; None if there was
        none, or its weights are no longer kept.
    """

    def __init__(
        self,
        *,
        solved_return: float | None,
        max_env_steps: int,
        max_updates: int,
        find_snapshot: Callable[[int], Snapshot | None],
        best: Evaluated | None = None,
    ) -> None:
        """Starts from the best weights known, those of a resumed run for example.

        Args:
          solved_return: what an evaluation is to reach; None if nothing will do.
          max_env_steps: where the run ends at the latest.
          max_updates: the same for updates of the weights; 0 for no limit.
          find_snapshot: returns what was published under a version, if it is still kept.
          best: the best weights known.
        """
        self.decision: Decision | None = None
        self.best = best
        self._solved_return = solved_return
        self._max_env_steps = max_env_steps
        self._max_updates = max_updates
        self._find_snapshot = find_snapshot
        self._seen_version = 0

    def observe(self, progress: pb.Progress) -> None:
        """Takes in how the run is doing."""
        for evaluation in progress.evaluations:
            if evaluation.policy_version > self._seen_version and evaluation.episode_returns:
                self._seen_version = evaluation.policy_version
                self._judge(evaluation)
        if self.decision is None and progress.env_steps >= self._max_env_steps:
            self.decision = Decision(
                pb.OUTCOME_STEP_LIMIT,
                f"{progress.env_steps} of at most {self._max_env_steps} environment steps",
            )

    def observe_updates(self, update_count: int) -> None:
        """Takes in how many updates of the weights there have been."""
        if self.decision is None and 0 < self._max_updates <= update_count:
            self.decision = Decision(
                pb.OUTCOME_STEP_LIMIT, f"{update_count} of at most {self._max_updates} updates"
            )

    def _judge(self, evaluation: pb.Evaluation) -> None:
        if self.decision is not None:
            return
        mean = statistics.fmean(evaluation.episode_returns)
        self._keep_if_best(mean, evaluation.policy_version)
        if self._solved_return is not None and mean >= self._solved_return:
            self.decision = Decision(
                pb.OUTCOME_SOLVED,
                f"mean return {mean:.1f} over {len(evaluation.episode_returns)} greedy episodes "
                f"with version {evaluation.policy_version} of the weights, "
                f"{self._solved_return:g} asked for",
            )

    def _keep_if_best(self, mean: float, policy_version: int) -> None:
        if self.best is not None and mean < self.best.return_mean:
            return
        snapshot = self._find_snapshot(policy_version)
        if snapshot is None:
            logger.warning("version %d was evaluated but is no longer kept", policy_version)
            return
        self.best = Evaluated(mean, snapshot)
