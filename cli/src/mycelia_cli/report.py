"""What a training command says at its end: to people, and to programs as JSON."""

import os
import shutil
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mycelia_cli.plain import target
from mycelia_cli.progress import Progress
from mycelia_cli.run_folder import RUNS_ON_HOST, RunFolder


@dataclass(frozen=True, kw_only=True, slots=True)
class Report:
    """How a training run went."""

    preset: str
    """What the person called the preset, for the command that goes on."""
    progress: Progress | None
    """The last that was seen of the run; None if it never began."""
    run_dir: str
    learner_steps: int
    launch_seconds: float
    """Unix time when the command was started."""

    def as_json(self) -> dict[str, Any]:
        """Returns the result for programs; times in seconds, null for what did not happen."""
        progress = self.progress
        evaluation = progress.decisive_evaluation if progress else None
        started = progress.train_start_seconds if progress else None
        solved = progress is not None and progress.is_solved
        return {
            "solved": solved,
            "outcome": progress.outcome if progress else "",
            "eval_return_mean": evaluation.return_mean if evaluation else None,
            "eval_return_std": evaluation.return_std if evaluation else None,
            "env_steps": progress.env_steps if progress else 0,
            "learner_steps": self.learner_steps,
            "seconds": (progress.train_seconds if progress else None) or 0.0,
            "seconds_to_solve": (
                evaluation.record_seconds - started if solved and evaluation and started else None
            ),
            "start_seconds": started - self.launch_seconds if started else None,
            "total_seconds": time.time() - self.launch_seconds,
            "run_dir": self.run_dir,
        }

    def lines(self) -> list[str]:
        """Returns what people want to know: the result, where it lies, what to do next."""
        lines = self._result()
        folder = RunFolder(Path(self.run_dir))
        if not self.run_dir:
            return lines
        if not folder.path.is_dir():
            # With --attach the learner, and so the folder, may be on another machine.
            return [*lines, f"  run folder  {self.run_dir} where the learner runs"]
        shown = RunFolder(folder.shown)
        lines.append(f"  run folder  {shown.path}")
        if folder.curve.exists():
            lines.append(f"  curve       {shown.curve}")
        if folder.checkpoint.exists():
            lines.append(f"  checkpoint  {shown.checkpoint}")
            lines.append(f"  evaluate    {program('mycelia')} eval {shown.path}")
            lines.append(
                f"  go on       {program('mycelia')} train {self.preset} resume={shown.path}"
            )
        lines.append(f"  look        {program('tensorboard')} --logdir {shown.path}")
        return lines

    def _result(self) -> list[str]:
        progress = self.progress
        if progress is None:
            return ["stopped before the run began"]
        evaluation = progress.decisive_evaluation
        numbers = [f"{progress.env_steps:,} env steps", f"{self.learner_steps:,} updates"]
        if progress.train_seconds is not None:
            numbers.append(f"{progress.train_seconds:.1f} s of training")
        if evaluation:
            score = f"{evaluation.return_mean:.1f} ± {evaluation.return_std:.1f}"
            numbers.insert(0, f"evaluation {score}{target(progress)}")
        detail = f": {progress.outcome_detail}" if progress.outcome_detail else ""
        return [
            (progress.outcome or "left the run") + detail,
            f"  result      {', '.join(numbers)}",
        ]


def program(name: str) -> str:
    """Returns how to call a program that is installed beside this one.

    Its bare name if the shell finds that one, or if the person is outside of this container;
    else its path from here.
    """
    beside = Path(sys.executable).parent / name
    found = shutil.which(name)
    if RUNS_ON_HOST in os.environ or (found and Path(found).resolve() == beside.resolve()):
        return name
    return os.path.relpath(beside)
