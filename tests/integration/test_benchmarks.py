"""The benchmarks of acting run, and print what their readers look for."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

ROOT = Path(__file__).parents[2]


def run(module, *arguments):
    command = [sys.executable, "-m", module, *arguments, "--json"]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_backends_are_compared_at_every_step_cost():
    found = run("benchmarks.envs", "--only", "cost", "--envs", "2", "--seconds", "0.03")

    assert {row["step_cost_us"] for row in found["rows"]} == {0, 20, 200, 1000}
    assert {row["backend"] for row in found["rows"]} == {
        "sync",
        "process",
        "gymnasium-sync",
        "gymnasium-async",
    }
    slowest = [row["steps_per_second"] for row in found["rows"] if row["step_cost_us"] == 1000]
    # Two environments, each of which keeps a core busy for a millisecond.
    assert all(0 < rate <= 2000 for rate in slowest)
    assert 0 < found["auto_over_best_min"] <= 1


def test_double_buffering_is_compared_with_lock_step():
    options = ("--envs", "2", "--rounds", "1", "--seconds", "0.3")
    found = run("benchmarks.overlap", "--only", "waits_10ms", *options)

    (row,) = found["groups"]
    # Each of the two waits 10 ms in a step.
    assert 0 < row["together_steps_per_second"] <= 200
    assert 0 < row["groups_steps_per_second"] <= 200
    assert found["double_buffering_gain"] == {"waits_10ms": row["gain"]}


def test_new_weights_come_from_a_server_and_their_share_of_the_time_is_told():
    found = run("benchmarks.overlap", "--only", "weights", "--rounds", "1", "--seconds", "1")

    assert 1 < found["weight_refreshes_per_second"] <= 11
    assert 0 < found["weight_refresh_share_of_time"] < 0.5
    assert 0 < found["weight_receive_cpu_ms"] < 500
    assert found["weight_refresh_slows_by"] < 1
