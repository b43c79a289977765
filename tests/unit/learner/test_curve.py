"""The learning curve as a picture."""

import json

import pytest

from mycelia_learner.curve import draw_curve, read_curve

LINES = [
    {"kind": "progress", "env_steps": 0},
    {"kind": "progress", "env_steps": 100, "episode_return_mean": 20.0},
    {
        "kind": "evaluation",
        "env_steps": 150,
        "episode_return_mean": 30.0,
        "episode_return_std": 4.0,
    },
    {"kind": "progress", "env_steps": 200, "episode_return_mean": 40.0},
]


def write_lines(folder, lines, tail=""):
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines) + tail)


def test_points_are_read_in_order_and_a_torn_line_is_passed_over(tmp_path):
    write_lines(tmp_path, LINES, tail='{"kind": "progr')

    curve = read_curve(tmp_path)

    assert curve.training == [(100, 20.0), (200, 40.0)]
    assert curve.evaluation == [(150, 30.0, 4.0)]


@pytest.mark.parametrize("lines", [LINES, []], ids=["a run", "nothing yet"])
@pytest.mark.parametrize("solved_return", [475.0, None])
def test_a_png_is_drawn(tmp_path, lines, solved_return):
    write_lines(tmp_path, lines)

    path = draw_curve(tmp_path, title="test", solved_return=solved_return)

    assert path == tmp_path / "curve.png"
    assert path.read_bytes().startswith(b"\x89PNG")
    assert path.stat().st_size > 5_000
