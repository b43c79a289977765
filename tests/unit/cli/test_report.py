"""What is said at the end of a run."""

import json
import sys
import time
from pathlib import Path

import pytest

from mycelia.run.v1 import run_pb2 as pb
from mycelia_cli.progress import ProgressTracker
from mycelia_cli.report import Report, program
from mycelia_cli.run_folder import create_run_folder
from mycelia_cli.settings import resolve

START = 1_000_000


def finished(outcome):
    run = pb.Run(name="apex-cartpole", phase=pb.PHASE_FINISHED, outcome=outcome)
    run.train_start_time.FromSeconds(START)
    run.finish_time.FromSeconds(START + 60)
    evaluation = pb.Evaluation(policy_version=4, episode_returns=[500, 480])
    evaluation.record_time.FromSeconds(START + 40)
    progress = pb.Progress(env_steps=9_000, evaluations=[evaluation])
    answer = pb.GetRunResponse(run=run, progress=progress)
    return ProgressTracker(resolve("apex-cartpole", [], {}).config).update(answer)


def report(progress, run_dir=""):
    return Report(
        preset="apex-cartpole",
        progress=progress,
        run_dir=run_dir,
        launch_seconds=START - 5,
        learner_steps=700,
    )


def test_a_solved_run_tells_when_it_was_solved():
    result = report(finished(pb.OUTCOME_SOLVED)).as_json()

    assert result["solved"] is True
    assert result["eval_return_mean"] == 490.0
    assert result["eval_return_std"] == 10.0
    assert result["seconds"] == 60.0
    assert result["seconds_to_solve"] == 40.0
    assert result["start_seconds"] == 5.0
    assert result["env_steps"] == 9_000
    assert result["learner_steps"] == 700
    assert result["total_seconds"] == pytest.approx(time.time() - START + 5, abs=5)


def test_a_run_that_was_not_solved_has_no_time_to_solve():
    result = report(finished(pb.OUTCOME_STEP_LIMIT)).as_json()

    assert result["solved"] is False
    assert result["outcome"] == "step limit"
    assert result["seconds_to_solve"] is None


def test_a_run_that_never_began_is_json_too():
    nothing = report(None)

    assert json.loads(json.dumps(nothing.as_json()))["eval_return_mean"] is None
    assert nothing.lines() == ["stopped before the run began"]


def test_people_are_told_where_it_lies_and_what_comes_next(tmp_path):
    folder = create_run_folder(tmp_path, "apex-cartpole")
    folder.curve.touch()
    folder.checkpoint.mkdir()

    text = "\n".join(report(finished(pb.OUTCOME_SOLVED), str(folder.path)).lines())

    assert (
        "evaluation 490.0 ± 10.0 of 475, 9,000 env steps, 700 updates, 60.0 s of training" in text
    )
    assert str(folder.curve) in text
    assert f"eval {folder.path}" in text
    assert f"train apex-cartpole resume={folder.path}" in text
    assert f"--logdir {folder.path}" in text


def test_what_is_not_there_is_not_offered(tmp_path):
    folder = create_run_folder(tmp_path, "apex-cartpole")

    text = "\n".join(report(finished(pb.OUTCOME_STOPPED), str(folder.path)).lines())

    assert "resume=" not in text
    assert "curve" not in text


def test_a_folder_on_another_machine_is_said_to_be_there():
    lines = report(finished(pb.OUTCOME_SOLVED), "/nowhere/run").lines()

    assert "/nowhere/run where the learner runs" in lines[-1]


def test_a_program_is_called_by_a_path_unless_the_shell_finds_it(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    by_path = program("mycelia")
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent))
    by_name = program("mycelia")

    assert by_path.endswith("/mycelia")
    assert by_name == "mycelia"
