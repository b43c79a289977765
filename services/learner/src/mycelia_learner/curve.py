"""The learning curve as a picture, drawn from metrics.jsonl."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mycelia_learner.recorder import METRICS, parse_line

CURVE = "curve.png"

_TRAINING_COLOUR = "#b9c4cf"
_EVALUATION_COLOUR = "#0f766e"
_THRESHOLD_COLOUR = "#c2410c"
_TEXT_COLOUR = "#334155"


@dataclass(slots=True)
class Curve:
    """Points of the learning curve: environment steps against returns."""

    training: list[tuple[float, float]] = field(default_factory=list)
    """(env_steps, mean return of the last training episodes)."""

    evaluation: list[tuple[float, float, float]] = field(default_factory=list)
    """(env_steps, mean return, standard deviation over the episodes)."""


def read_curve(run_dir: Path) -> Curve:
    """Reads the points of a run so far."""
    curve = Curve()
    with (run_dir / METRICS).open(encoding="utf-8") as file:
        for text in file:
            line = parse_line(text)
            if "episode_return_mean" not in line:
                continue
            point = (line["env_steps"], line["episode_return_mean"])
            if line["kind"] == "evaluation":
                curve.evaluation.append((*point, line["episode_return_std"]))
            else:
                curve.training.append(point)
    return curve


def draw_curve(run_dir: Path, *, title: str, solved_return: float | None) -> Path:
    """Draws RUN_DIR/curve.png. Imports matplotlib, which takes a moment."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4.5), dpi=130, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    _draw_points(axes, read_curve(run_dir))
    if solved_return is not None:
        axes.axhline(solved_return, color=_THRESHOLD_COLOUR, linewidth=1, linestyle=(0, (4, 3)))
        axes.annotate(
            f"solved at {solved_return:g}",
            xy=(0, solved_return),
            xycoords=("axes fraction", "data"),
            xytext=(4, 4),
            textcoords="offset points",
            color=_THRESHOLD_COLOUR,
            fontsize=9,
        )
    _dress(axes, title)
    path = run_dir / CURVE
    figure.savefig(path)
    return path


def _draw_points(axes: Any, curve: Curve) -> None:
    if curve.training:
        steps, returns = zip(*curve.training, strict=True)
        axes.plot(steps, returns, color=_TRAINING_COLOUR, linewidth=1.5, label="training episodes")
    if curve.evaluation:
        steps, means, deviations = zip(*curve.evaluation, strict=True)
        low = [mean - deviation for mean, deviation in zip(means, deviations, strict=True)]
        high = [mean + deviation for mean, deviation in zip(means, deviations, strict=True)]
        axes.fill_between(steps, low, high, color=_EVALUATION_COLOUR, alpha=0.15, linewidth=0)
        axes.plot(
            steps,
            means,
            color=_EVALUATION_COLOUR,
            linewidth=2,
            marker="o",
            markersize=4,
            label="greedy evaluation, mean ± std",
        )
    if curve.training or curve.evaluation:
        axes.legend(loc="lower right", frameon=False, fontsize=9)


def _dress(axes: Any, title: str) -> None:
    axes.set_title(title, loc="left", color=_TEXT_COLOUR, fontsize=12, fontweight="bold")
    axes.set_xlabel("environment steps", color=_TEXT_COLOUR)
    axes.set_ylabel("episode return", color=_TEXT_COLOUR)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.grid(axis="y", color="#e2e8f0", linewidth=0.8)
    axes.tick_params(colors=_TEXT_COLOUR, length=0)
    axes.set_axisbelow(True)
    axes.set_xlim(left=0)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color("#94a3b8")
