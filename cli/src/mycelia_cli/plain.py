"""Progress as plain lines, for pipes and logs."""

import time
from types import TracebackType
from typing import Self, TextIO

from mycelia_cli.gradient_figures import GradientFigures
from mycelia_cli.progress import Progress

_PERIOD_SECONDS = 3.0


class PlainView:
    """Prints one line every few seconds, and one whenever the phase changes."""

    def __init__(self, output: TextIO, period_seconds: float = _PERIOD_SECONDS) -> None:
        """Prints nothing yet."""
        self._output = output
        self._period_seconds = period_seconds
        self._phase = ""
        self._next = 0.0

    def __enter__(self) -> Self:
        """Returns itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Does nothing: every line has been written."""

    def note(self, text: str) -> None:
        """Prints a line that is not about progress."""
        print(text, file=self._output, flush=True)

    def update(self, progress: Progress) -> None:
        """Prints the line if one is due."""
        now = time.monotonic()
        if progress.phase == self._phase and (now < self._next or progress.is_finished):
            return
        self._phase, self._next = progress.phase, now + self._period_seconds
        print(line(progress), file=self._output, flush=True)


def line(progress: Progress) -> str:
    """Returns the moment in one line."""
    parts = [f"{progress.elapsed_seconds:6.1f} s", progress.phase]
    if progress.phase == "starting":
        parts.append(f"joined: {', '.join(sorted(progress.members)) or 'nobody yet'}")
        return " | ".join([*parts, *_awaited(progress)])
    parts += [
        f"env steps {progress.env_steps:,} ({progress.env_steps_per_second:,.0f}/s)",
        f"updates {progress.learner_steps:,} ({progress.learner_steps_per_second:,.0f}/s)",
        *_data(progress),
    ]
    if progress.recent_return_mean is not None:
        parts.append(f"return {progress.recent_return_mean:.1f}")
    if progress.evaluations:
        last = progress.evaluations[-1]
        parts.append(f"eval {last.return_mean:.1f} ± {last.return_std:.1f}{target(progress)}")
    followers = "" if progress.gradients else f" (actors {behind(progress)})"
    parts.append(f"weights v{progress.weight_version}{followers}")
    parts.append(f"waiting {waiting(progress)}")
    return " | ".join([*parts, *_awaited(progress)])


def _awaited(progress: Progress) -> list[str]:
    if not progress.awaited:
        return []
    return [f"not there: {', '.join(progress.awaited)}"]


def _data(progress: Progress) -> list[str]:
    if progress.gradients:
        return [f"{name} {text}" for name, text in gradient_facts(progress.gradients)]
    return [
        f"replay {progress.replay_rows:,}/{progress.replay_capacity_rows:,}",
        f"samples per insert {progress.samples_per_insert:.1f}",
    ]


def gradient_facts(figures: GradientFigures) -> list[tuple[str, str]]:
    """Returns what became of gradients, how old they were and how rounds went: names and texts."""
    rounds = figures.rounds
    fates = [f"{figures.applied:,} applied ({figures.applied_per_second:,.0f}/s)"]
    if figures.scaled:
        fates.append(f"{figures.scaled:,} of them scaled")
    fates += [
        f"{figures.stale:,} {'late' if rounds else 'too old'}",
        f"{figures.refused:,} refused",
    ]
    facts = [
        ("gradients", ", ".join(fates)),
        ("staleness", f"{figures.staleness_mean:.2f} mean, {figures.staleness_max:,} max"),
    ]
    if rounds:
        facts.append(
            (
                "rounds",
                f"{rounds.count:,} ({rounds.per_second:,.0f}/s) of {rounds.workers} workers, "
                f"{1e3 * rounds.mean_seconds:.1f} ms, {rounds.stragglers:,} stragglers",
            )
        )
    return facts


def target(progress: Progress) -> str:
    """Returns ` of 475`, or nothing if there is no return to reach."""
    return "" if progress.solved_return is None else f" of {progress.solved_return:g}"


def behind(progress: Progress) -> str:
    """Returns how many versions the actors are behind."""
    if not progress.staleness:
        return "not there"
    low, high = min(progress.staleness), max(progress.staleness)
    return f"{low} behind" if low == high else f"{low} to {high} behind"


def waiting(progress: Progress) -> str:
    """Returns who waits for whom, as parts of their time."""
    if progress.gradients:
        return f"workers {progress.insert_wait_share:.0%}"
    return f"actors {progress.insert_wait_share:.0%}, learner {progress.sample_wait_share:.0%}"
