"""How a run is doing at one moment: what the views and the JSON lines are made from."""

import collections
import statistics
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC
from typing import Literal

from google.protobuf.timestamp_pb2 import Timestamp

from mycelia.params.v1 import params_pb2
from mycelia.run.v1 import run_pb2 as pb
from mycelia_cli.gradient_figures import GradientFigures, GradientTracker
from mycelia_core.config import RunConfig
from mycelia_core.metrics import Rate

PHASES = {
    pb.PHASE_UNSPECIFIED: "unknown",
    pb.PHASE_STARTING: "starting",
    pb.PHASE_COLLECTING: "collecting",
    pb.PHASE_TRAINING: "training",
    pb.PHASE_FINISHED: "finished",
}
OUTCOMES = {
    pb.OUTCOME_UNSPECIFIED: "",
    pb.OUTCOME_SOLVED: "solved",
    pb.OUTCOME_STEP_LIMIT: "step limit",
    pb.OUTCOME_STOPPED: "stopped",
    pb.OUTCOME_FAILED: "failed",
}
ROLES = {
    pb.ROLE_UNSPECIFIED: "unknown",
    pb.ROLE_ACTOR: "actor",
    pb.ROLE_REPLAY: "replay",
    pb.ROLE_LEARNER: "learner",
    pb.ROLE_EVALUATOR: "evaluator",
    pb.ROLE_PARAM_SHARD: "param-shard",
    pb.ROLE_INFERENCE: "inference",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class EvaluationScore:
    """One greedy evaluation in numbers."""

    policy_version: int
    env_steps: int
    return_mean: float
    return_std: float
    """Over the episodes of this evaluation; the population's."""
    record_seconds: float
    """Unix time."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Progress:
    """One moment of a run."""

    name: str
    run_id: str
    run_dir: str
    phase: str
    outcome: str
    outcome_detail: str
    elapsed_seconds: float
    """Since the run was created, until its end."""
    train_start_seconds: float | None
    """Unix time of the first learner step; None before it."""
    finish_seconds: float | None
    """Unix time of the end; None before it."""
    env_steps: int
    initial_env_steps: int
    max_env_steps: int
    env_steps_per_second: float
    learner_steps: int
    learner_steps_per_second: float
    replay_rows: int
    replay_capacity_rows: int
    samples_per_insert: float
    """Items drawn per item inserted so far; 0 before the first insert."""
    samples_per_insert_wanted: float
    """The limiter's set point; 0 for no limit."""
    episode_count: int
    recent_return_mean: float | None
    """Mean return of the last training episodes, at most 100; None before the first."""
    evaluations: tuple[EvaluationScore, ...]
    solved_return: float | None
    weight_version: int
    staleness: tuple[int, ...]
    """Versions that each living actor is behind."""
    insert_wait_share: float
    """Part of their time that actors wait for the replay, in [0, 1]."""
    sample_wait_share: float
    """Part of its time that the learner waits for batches, in [0, 1]."""
    members: tuple[str, ...]
    """Roles of the living members."""
    awaited: tuple[str, ...] = ()
    """Services that the config wants and that have not joined: a run that stands waits for them."""
    gradients: GradientFigures | None = None
    """What became of the workers' gradients; None in runs with replay."""

    @property
    def is_finished(self) -> bool:
        """Whether the run has ended."""
        return self.phase == "finished"

    @property
    def is_solved(self) -> bool:
        """Whether it ended because an evaluation reached the return asked for."""
        return self.outcome == "solved"

    @property
    def train_seconds(self) -> float | None:
        """Wall time of training: from the first learner step to the end, or to now."""
        if self.train_start_seconds is None:
            return None
        # The first step may be reported after the end of a run of a few steps.
        return max(0.0, (self.finish_seconds or time.time()) - self.train_start_seconds)

    @property
    def decisive_evaluation(self) -> EvaluationScore | None:
        """The evaluation that the run is judged by: the one that solved it, else the last."""
        if self.is_solved and self.solved_return is not None:
            for evaluation in self.evaluations:
                if evaluation.return_mean >= self.solved_return:
                    return evaluation
        return self.evaluations[-1] if self.evaluations else None


class ProgressTracker:
    """Makes a `Progress` of every answer of the registry; keeps what rates need."""

    def __init__(self, config: RunConfig) -> None:
        """Has seen nothing yet."""
        self._config = config
        self._env_steps = Rate()
        self._learner_steps = Rate()
        self._insert_wait = Rate()
        self._sample_wait = Rate()
        self._counters: dict[tuple[int, str], float] = {}
        self._gradients = (
            None
            if config.topology == "replay"
            else GradientTracker(in_rounds=config.topology == "sync-gradients")
        )

    @property
    def wants_gradients(self) -> bool:
        """Whether what became of gradients belongs into the answer."""
        return self._gradients is not None

    def update(
        self, answer: pb.GetRunResponse, info: params_pb2.GetGradientInfoResponse | None = None
    ) -> Progress:
        """Returns where the run stands. Called in order of time.

        Args:
          answer: the registry's.
          info: what became of gradients; None if it is not known now.
        """
        run, progress, config = answer.run, answer.progress, self._config
        now = time.monotonic()
        actors = _living(answer.members, pb.ROLE_ACTOR)
        learner_steps = self._counter(answer, pb.ROLE_LEARNER, "learner_steps")
        gradients = self._gradients.update(info) if self._gradients else None
        if gradients:
            # What the server has done; the learner has heard of it later, if at all.
            learner_steps = max(learner_steps, gradients.updates)
        inserted = self._counter(answer, pb.ROLE_REPLAY, "inserted_items")
        sampled = self._counter(answer, pb.ROLE_REPLAY, "sampled_items")
        insert_wait = self._counter(answer, pb.ROLE_ACTOR, "insert_wait_seconds")
        sample_wait = self._counter(answer, pb.ROLE_LEARNER, "sample_wait_seconds")
        return Progress(
            name=run.name,
            run_id=run.run_id,
            run_dir=run.run_dir,
            phase=PHASES.get(run.phase, "unknown"),
            outcome=OUTCOMES.get(run.outcome, "unknown"),
            outcome_detail=run.outcome_detail,
            elapsed_seconds=_elapsed_seconds(run),
            train_start_seconds=_seconds(run, "train_start_time"),
            finish_seconds=_seconds(run, "finish_time"),
            env_steps=progress.env_steps,
            initial_env_steps=run.initial_env_steps,
            max_env_steps=config.limits.max_env_steps,
            env_steps_per_second=self._env_steps.update(progress.env_steps, now),
            learner_steps=int(learner_steps),
            learner_steps_per_second=self._learner_steps.update(learner_steps, now),
            replay_rows=int(self._counter(answer, pb.ROLE_REPLAY, "replay_rows")),
            replay_capacity_rows=config.replay.capacity_rows,
            samples_per_insert=sampled / inserted if inserted else 0.0,
            samples_per_insert_wanted=config.replay.samples_per_insert,
            episode_count=progress.episode_count,
            recent_return_mean=_mean(e.episode_return for e in progress.recent_episodes),
            evaluations=tuple(score(evaluation) for evaluation in progress.evaluations),
            solved_return=config.evaluation.solved_return,
            weight_version=answer.weight_version,
            staleness=staleness(actors, self._reported_version(answer)),
            insert_wait_share=_share(self._insert_wait.update(insert_wait, now), len(actors)),
            sample_wait_share=_share(self._sample_wait.update(sample_wait, now), 1),
            members=tuple(ROLES.get(member.role, "?") for member in answer.members if member.alive),
            awaited=tuple(_awaited(config, answer)),
            gradients=gradients,
        )

    def _reported_version(self, answer: pb.GetRunResponse) -> int:
        # Actors' versions are as old as their last heartbeat, so they are compared
        # with the learner's last heartbeat, not with what is newest by now.
        reported = self._counter(answer, pb.ROLE_LEARNER, "policy_version")
        return int(reported) or answer.weight_version

    def _counter(self, answer: pb.GetRunResponse, role: pb.Role.ValueType, name: str) -> float:
        if any(member.role == role for member in answer.members):
            self._counters[role, name] = counter(answer.members, role, name)
        # Members that have taken leave are off the list, but what they did counts.
        return self._counters.get((role, name), 0.0)


def score(evaluation: pb.Evaluation) -> EvaluationScore:
    """Returns an evaluation's mean and spread; NaN if it has no episodes."""
    returns = list(evaluation.episode_returns)
    return EvaluationScore(
        policy_version=evaluation.policy_version,
        env_steps=evaluation.env_steps,
        return_mean=statistics.fmean(returns) if returns else float("nan"),
        return_std=statistics.pstdev(returns) if returns else float("nan"),
        record_seconds=_unix(evaluation.record_time),
    )


def counter(members: Iterable[pb.Member], role: pb.Role.ValueType, name: str) -> float:
    """Returns the sum of a counter over the members of a role."""
    return sum(member.counters.get(name, 0.0) for member in members if member.role == role)


def staleness(actors: Iterable[pb.Member], weight_version: int) -> tuple[int, ...]:
    """Returns how many versions each actor is behind; 0 if it has reported later."""
    versions = (int(actor.counters.get("policy_version", 0)) for actor in actors)
    return tuple(max(0, weight_version - version) for version in versions)


def _awaited(config: RunConfig, answer: pb.GetRunResponse) -> Iterator[str]:
    if answer.run.phase == pb.PHASE_FINISHED:
        return
    there = collections.Counter(member.role for member in answer.members if member.alive)
    with_replay = config.topology == "replay"
    wanted = {
        pb.ROLE_LEARNER: (1, ""),
        pb.ROLE_REPLAY: (with_replay and config.replay.shards, "replay.shards"),
        pb.ROLE_PARAM_SHARD: (config.param_server.shards - 1, "param_server.shards"),
        pb.ROLE_INFERENCE: (config.actor.inference == "central", "actor.inference"),
        pb.ROLE_ACTOR: (1, ""),
    }
    for role, (count, key) in wanted.items():
        missing = count - there[role]
        if missing > 0:
            yield f"{missing} {ROLES[role]}" + (f" ({key})" if key else "")


def _living(members: Iterable[pb.Member], role: pb.Role.ValueType) -> list[pb.Member]:
    return [member for member in members if member.alive and member.role == role]


def _mean(values: Iterable[float]) -> float | None:
    values = list(values)
    return statistics.fmean(values) if values else None


def _share(seconds_per_second: float, waiter_count: int) -> float:
    return min(1.0, max(0.0, seconds_per_second / max(1, waiter_count)))


def _elapsed_seconds(run: pb.Run) -> float:
    start = _seconds(run, "create_time")
    return max(0.0, (_seconds(run, "finish_time") or time.time()) - start) if start else 0.0


def _seconds(
    run: pb.Run, field: Literal["create_time", "train_start_time", "finish_time"]
) -> float | None:
    return _unix(getattr(run, field)) if run.HasField(field) else None


def _unix(timestamp: Timestamp) -> float:
    return timestamp.ToDatetime(tzinfo=UTC).timestamp()
