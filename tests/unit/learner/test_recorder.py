"""The run's figures on disk."""

import pytest
from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

from mycelia.run.v1 import run_pb2 as pb
from mycelia_learner.recorder import Recorder

from .conftest import read_lines


def response(*, env_steps=640, evaluations=((3, [10.0, 20.0]),)):
    answer = pb.GetRunResponse(
        progress=pb.Progress(
            env_steps=env_steps,
            episode_count=30,
            recent_episodes=[pb.Episode(episode_return=r, length=r) for r in range(30)],
            evaluations=[
                pb.Evaluation(
                    policy_version=v, learner_step=10 * v, env_steps=500, episode_returns=r
                )
                for v, r in evaluations
            ],
        ),
        members=[
            pb.Member(role=pb.ROLE_ACTOR, alive=True, counters={"policy_version": 4}),
            pb.Member(role=pb.ROLE_ACTOR, alive=True, counters={"policy_version": 2}),
            pb.Member(role=pb.ROLE_ACTOR, alive=False, counters={"policy_version": 0}),
        ],
        weight_version=5,
    )
    answer.run.create_time.GetCurrentTime()
    for evaluation in answer.progress.evaluations:
        evaluation.record_time.GetCurrentTime()
    return answer


def make_recorder(tmp_path, **counters):
    return Recorder(tmp_path, lambda: counters, lambda: {"replay_items": 7})


def test_a_line_of_progress_has_the_figures_by_their_names(tmp_path):
    recorder = make_recorder(tmp_path, learner_steps=12.0, loss=0.5, q_mean=float("nan"))

    recorder.observe(response(evaluations=()))
    recorder.close()

    (line,) = read_lines(tmp_path / "metrics.jsonl")
    assert line["kind"] == "progress"
    assert 0 <= line["time_seconds"] < 5
    assert (line["env_steps"], line["learner_steps"], line["loss"]) == (640, 12, 0.5)
    assert line["episode_return_mean"] == pytest.approx(sum(range(10, 30)) / 20)
    assert (line["weight_version"], line["staleness"], line["replay_items"]) == (5, 2.0, 7)
    assert "q_mean" not in line, "NaN is not JSON"


def test_an_evaluation_is_recorded_once_with_its_statistics(tmp_path):
    recorder = make_recorder(tmp_path)

    recorder.observe(response())
    recorder.observe(response())
    recorder.close()

    lines = [
        line for line in read_lines(tmp_path / "metrics.jsonl") if line["kind"] == "evaluation"
    ]
    assert [line["policy_version"] for line in lines] == [3]
    assert (lines[0]["episode_return_mean"], lines[0]["episode_return_std"]) == (15.0, 5.0)


def test_progress_is_recorded_once_a_second_unless_hurried(tmp_path):
    recorder = make_recorder(tmp_path)

    recorder.observe(response(evaluations=()))
    recorder.observe(response(evaluations=()))
    recorder.hurry()
    recorder.observe(response(evaluations=()))
    recorder.close()

    assert len(read_lines(tmp_path / "metrics.jsonl")) == 2


def test_a_restarted_recorder_goes_on_after_a_torn_line_and_repeats_no_evaluation(tmp_path):
    first = make_recorder(tmp_path)
    first.observe(response())
    first.close()
    path = tmp_path / "metrics.jsonl"
    path.write_text(path.read_text() + '{"kind": "prog')

    second = make_recorder(tmp_path)
    second.observe(response())
    second.close()

    kinds = [line.split('"')[3] for line in path.read_text().splitlines()]
    assert kinds == ["evaluation", "progress", "prog", "progress"]


def test_tensorboard_finds_the_figures_against_env_steps(tmp_path):
    recorder = make_recorder(tmp_path, learner_steps=12.0, loss=0.5)

    recorder.observe(response())
    recorder.close()

    (path,) = (tmp_path / "tensorboard").iterdir()
    scalars = {
        value.tag: (event.step, value.tensor.float_val[0])
        for event in EventFileLoader(str(path)).Load()
        for value in event.summary.value
    }
    assert scalars["progress/loss"] == (640, 0.5)
    assert scalars["evaluation/episode_return_mean"] == (500, 15.0)
