"""The live view of a run, for terminals."""

from collections import Counter
from types import TracebackType
from typing import Self

from rich.console import Console, ConsoleRenderable, Group
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from mycelia_cli.plain import behind, gradient_facts, target, waiting
from mycelia_cli.progress import Progress

_FRAMES_PER_SECOND = 4
_HINT = " Ctrl-C stops with a checkpoint "
_BARS = "▁▂▃▄▅▆▇█"
_PHASE_STYLES = {
    "starting": "yellow",
    "collecting": "yellow",
    "training": "green",
    "finished": "bold green",
}


class LiveView:
    """Redraws one panel in place; owned by the thread that made it."""

    def __init__(self, console: Console) -> None:
        """Draws nothing until it is entered."""
        self._live = Live(console=console, refresh_per_second=_FRAMES_PER_SECOND, transient=False)

    def __enter__(self) -> Self:
        """Starts drawing."""
        self._live.start()
        self._live.update(Text("starting the services ...", style="yellow"))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Leaves the last picture standing and gives the terminal back."""
        self._live.stop()

    def note(self, text: str) -> None:
        """Prints a line above the panel."""
        self._live.console.print(text, markup=False, highlight=False)

    def update(self, progress: Progress) -> None:
        """Takes the next moment; it is drawn with the next frame."""
        self._live.update(render(progress))


def render(progress: Progress) -> ConsoleRenderable:
    """Returns the panel for one moment."""
    style = _PHASE_STYLES.get(progress.phase, "")
    title = Text.assemble(
        (f" {progress.name} ", "bold"),
        f"run {progress.run_id}, " if progress.run_id else "",
        (f"{progress.phase} ", style),
        (f"{progress.outcome} ", "bold") if progress.outcome else "",
    )
    return Panel(
        Group(_bar(progress), _rows(progress)),
        title=title,
        title_align="left",
        subtitle=None if progress.is_finished else Text(_HINT, style="dim"),
        subtitle_align="right",
        border_style=style or "none",
    )


def _bar(progress: Progress) -> ConsoleRenderable:
    grid = Table.grid(padding=(0, 1), expand=True)
    for ratio in (None, 1, None):
        grid.add_column(ratio=ratio, no_wrap=True)
    grid.add_row(
        clock(progress.elapsed_seconds),
        ProgressBar(total=progress.max_env_steps, completed=progress.env_steps),
        f"{progress.env_steps:,} of {progress.max_env_steps:,} env steps at most",
    )
    return grid


def _rows(progress: Progress) -> ConsoleRenderable:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="cyan", no_wrap=True)
    grid.add_column()
    for name, text in _facts(progress):
        grid.add_row(name, text)
    return grid


def _facts(progress: Progress) -> list[tuple[str, str]]:
    followers = "" if progress.gradients else f", actors {behind(progress)}"
    updates = "updates" if progress.gradients else "learner updates"
    return [
        ("env steps", f"{progress.env_steps:,}  {progress.env_steps_per_second:,.0f}/s"),
        (updates, f"{progress.learner_steps:,}  {progress.learner_steps_per_second:,.0f}/s"),
        *_data(progress),
        ("training return", _training_return(progress)),
        ("evaluation", _evaluation(progress)),
        ("weights", f"version {progress.weight_version}{followers}"),
        ("waiting", waiting(progress)),
        ("services", _services(progress)),
    ]


def _data(progress: Progress) -> list[tuple[str, str]]:
    if progress.gradients:
        return gradient_facts(progress.gradients)
    wanted = progress.samples_per_insert_wanted
    return [
        ("replay", f"{progress.replay_rows:,} of {progress.replay_capacity_rows:,} rows"),
        (
            "samples per insert",
            f"{progress.samples_per_insert:.1f}" + (f" of {wanted:g} wanted" if wanted else ""),
        ),
    ]


def _training_return(progress: Progress) -> str:
    if progress.recent_return_mean is None:
        return "no episode has ended yet"
    count = min(100, progress.episode_count)
    return f"{progress.recent_return_mean:.1f}, mean of the last {count} episodes"


def _evaluation(progress: Progress) -> str:
    if not progress.evaluations:
        return f"none yet{target(progress).replace(' of', '; to reach:')}"
    last = progress.evaluations[-1]
    trend = sparkline([evaluation.return_mean for evaluation in progress.evaluations])
    return f"{last.return_mean:.1f} ± {last.return_std:.1f}{target(progress)}  {trend}"


def _services(progress: Progress) -> str:
    counts = Counter(progress.members)
    names = [f"{count} {role}s" if count > 1 else role for role, count in sorted(counts.items())]
    absent = [f"not there: {', '.join(progress.awaited)}"] if progress.awaited else []
    return "; ".join([", ".join(["param server", *names]), *absent])


def sparkline(values: list[float], width: int = 30) -> str:
    """Draws the last values as bars, from zero or the lowest to the highest."""
    values = values[-width:]
    low = min(0.0, *values)
    span = (max(values) - low) or 1.0
    return "".join(_BARS[round((value - low) / span * (len(_BARS) - 1))] for value in values)


def clock(seconds: float) -> str:
    """Returns `m:ss`, or `h:mm:ss` from an hour on."""
    minutes, second = divmod(int(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02}:{second:02}" if hours else f"{minute}:{second:02}"
