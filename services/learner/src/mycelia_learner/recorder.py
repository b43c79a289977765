"""The run's figures on disk: metrics.jsonl, and TensorBoard events beside it."""

import json
import math
import statistics
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TextIO

from mycelia.run.v1 import run_pb2 as pb
from mycelia_core.metrics import Rate
from mycelia_learner.event_file import EventFile

METRICS = "metrics.jsonl"
TENSORBOARD = "tensorboard"
PERIOD_SECONDS = 1.0
TRAINING_EPISODES = 20
"""How many of the last training episodes `episode_return_mean` is over."""

Figures = dict[str, float | int]


class Recorder:
    """Appends a line of figures every second, and one for each evaluation.

    Each line is a JSON object with `kind` (`progress` or `evaluation`), `time_seconds` since the
    run was created, and figures by glossary name. The monitor's thread owns it.
    """

    def __init__(
        self,
        run_dir: Path,
        read_counters: Callable[[], Mapping[str, float]],
        read_table: Callable[[], Mapping[str, float]],
    ) -> None:
        """Appends to what is there already.

        Args:
          run_dir: where the files go.
          read_counters: the learner's counters now, by glossary name.
          read_table: the replay table's figures now; may be empty.
        """
        self._file = (run_dir / METRICS).open("a+", encoding="utf-8")
        self._recorded = _read_evaluations(self._file)
        self._events = EventFile(run_dir / TENSORBOARD)
        self._read_counters = read_counters
        self._read_table = read_table
        self._rates = {"env_steps": Rate(), "learner_steps": Rate()}
        self._next_time = 0.0

    def observe(self, response: pb.GetRunResponse) -> None:
        """Records what is new, if it is time."""
        self._record_evaluations(response)
        if time.monotonic() >= self._next_time:
            self._next_time = time.monotonic() + PERIOD_SECONDS
            self._record_progress(response)

    def hurry(self) -> None:
        """Makes the next look at the run be recorded, however soon it comes."""
        self._next_time = 0.0

    def close(self) -> None:
        """Closes the files."""
        self._file.close()
        self._events.close()

    def _record_progress(self, response: pb.GetRunResponse) -> None:
        counters = self._read_counters()
        figures = describe_progress(response) | dict(self._read_table()) | dict(counters)
        figures["learner_steps"] = int(figures.get("learner_steps", 0))
        for name, rate in self._rates.items():
            figures[f"{name}_per_second"] = rate.update(float(figures[name]))
        seconds = time.time() - response.run.create_time.ToNanoseconds() / 1e9
        self._write("progress", seconds, figures)

    def _record_evaluations(self, response: pb.GetRunResponse) -> None:
        created = response.run.create_time.ToNanoseconds()
        for evaluation in response.progress.evaluations:
            key = (evaluation.policy_version, evaluation.env_steps)
            if key not in self._recorded:
                self._recorded.add(key)
                seconds = (evaluation.record_time.ToNanoseconds() - created) / 1e9
                self._write("evaluation", seconds, describe_evaluation(evaluation))

    def _write(self, kind: str, seconds: float, figures: Figures) -> None:
        finite = {name: value for name, value in figures.items() if math.isfinite(value)}
        rounded = {name: round(value, 6) for name, value in finite.items()}
        line: dict[str, Any] = {"kind": kind, "time_seconds": round(seconds, 3)} | rounded
        self._file.write(json.dumps(line) + "\n")
        self._file.flush()
        if self._read_counters():
            # Not before the learner has begun: importing TensorBoard would hold up its start.
            self._events.write(kind, finite, step=int(figures["env_steps"]))


def parse_line(text: str) -> dict[str, Any]:
    """Reads a line of metrics.jsonl; one that a crash has cut short is empty."""
    try:
        return dict(json.loads(text))
    except json.JSONDecodeError:
        return {}


def describe_progress(response: pb.GetRunResponse) -> Figures:
    """Says how the run as a whole is doing, by glossary name."""
    progress = response.progress
    figures: Figures = {
        "env_steps": progress.env_steps,
        "episode_count": progress.episode_count,
        "weight_version": response.weight_version,
    }
    episodes = progress.recent_episodes[-TRAINING_EPISODES:]
    if episodes:
        figures["episode_return_mean"] = statistics.fmean(e.episode_return for e in episodes)
        figures["episode_length_mean"] = statistics.fmean(e.length for e in episodes)
    versions = [
        member.counters["policy_version"]
        for member in response.members
        if member.role == pb.ROLE_ACTOR and member.alive and "policy_version" in member.counters
    ]
    if versions:
        figures["staleness"] = response.weight_version - statistics.fmean(versions)
    return figures


def describe_evaluation(evaluation: pb.Evaluation) -> Figures:
    """Sums an evaluation up, by glossary name."""
    returns = evaluation.episode_returns
    return {
        "env_steps": evaluation.env_steps,
        "learner_step": evaluation.learner_step,
        "policy_version": evaluation.policy_version,
        "episode_return_mean": statistics.fmean(returns),
        "episode_return_std": statistics.pstdev(returns),
        "episode_return_min": min(returns),
        "episodes": len(returns),
    }


def _read_evaluations(file: TextIO) -> set[tuple[int, int]]:
    # A learner that was restarted must not record what it recorded before.
    file.seek(0)
    recorded = set()
    text = ""
    for text in file:
        line = parse_line(text)
        if line.get("kind") == "evaluation":
            recorded.add((int(line["policy_version"]), int(line["env_steps"])))
    if text and not text.endswith("\n"):
        file.write("\n")  # a crash has cut the last line short
    return recorded
