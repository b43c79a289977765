"""What a newcomer's wait is measured by."""

import subprocess
import sys
import time

import pytest
from benchmarks.first_run import follow, forget_layers, fresh_clone

TRAINER = """
import json, pathlib, sys, time
folder = pathlib.Path("runs/a-run")
folder.mkdir(parents=True)
with (folder / "metrics.jsonl").open("w") as file:
    for steps in (0, 5):
        time.sleep(0.5)
        file.write(json.dumps({"learner_steps": steps}) + "\\n")
        file.flush()
time.sleep(0.5)
print("solved: mean return 500")
time.sleep(float(sys.argv[1]))
sys.exit(int(sys.argv[2]))
"""


@pytest.fixture
def clone(tmp_path):
    (tmp_path / "clone").mkdir()
    return tmp_path / "clone"


def test_it_sees_the_first_update_the_end_of_the_run_and_the_end_of_the_command(clone):
    start = time.perf_counter()

    times = follow([sys.executable, "-c", TRAINER, "0.5", "0"], clone, {}, start, 30)

    assert times["solved"]
    assert 1.0 < times["first_update_seconds"] < times["total_seconds"] - 0.5
    assert times["first_update_seconds"] - 0.5 < times["solved_seconds"] < times["total_seconds"]


def test_a_command_that_fails_or_does_not_end_is_no_figure(clone, tmp_path):
    with pytest.raises(SystemExit, match="exit code 3"):
        follow([sys.executable, "-c", TRAINER, "0", "3"], clone, {}, time.perf_counter(), 30)

    (tmp_path / "other").mkdir()
    with pytest.raises(SystemExit, match="no end within 1 s"):
        follow(
            [sys.executable, "-c", TRAINER, "60", "0"],
            tmp_path / "other",
            {},
            time.perf_counter(),
            1,
        )


def test_a_clone_holds_what_is_committed_and_forgets_earlier_layers():
    with fresh_clone() as (clone, _, seconds):
        before = (clone / "constraints.txt").read_text()
        forget_layers(clone)

        assert 0 < seconds < 30
        assert (clone / "compose.yaml").exists()
        assert (clone / "constraints.txt").read_text() != before
    assert not clone.exists()


def test_a_case_that_is_not_there_is_named():
    words = [sys.executable, "-m", "benchmarks.first_run", "--cases", "make_trian"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)

    assert done.returncode == 2
    assert "unknown make_trian; expected some of make_train, compose_build, compose" in done.stderr
