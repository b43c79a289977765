"""Training from the command line with real services, cut short by a small step limit."""

import json
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.timeout(120)

SHORT = (
    "limits.max_env_steps=3000",
    "replay.min_items_to_sample=200",
    "evaluation.period_seconds=0.2",
    "evaluation.episodes=3",
    "evaluation.solved_return=none",
)


def finish(command):
    assert command.end() == 0, command.text
    return json.loads(command.lines[-1])


def test_a_run_ends_at_its_step_limit_with_all_its_files(mycelia, tmp_path):
    command = mycelia("train", "apex-cartpole", *SHORT, "--json")
    command.wait_for("collecting|training")
    children = command.children()

    result = finish(command)

    assert len(children) == 6
    assert not command.left_over(children)
    assert result["solved"] is False
    assert result["outcome"] == "step limit"
    assert result["env_steps"] >= 3000
    assert result["learner_steps"] > 0
    assert result["eval_return_mean"] > 0
    assert result["seconds_to_solve"] is None
    assert 0 < result["seconds"] < result["total_seconds"]
    assert 0 < result["start_seconds"] < 30
    run_dir = tmp_path / result["run_dir"]
    assert run_dir.parent == tmp_path / "runs"
    for name in ("config.json", "metrics.jsonl", "curve.png", "checkpoint", "tensorboard"):
        assert (run_dir / name).exists(), name
    assert json.loads((run_dir / "config.json").read_text())["limits"]["max_env_steps"] == 3000
    assert {path.name for path in (run_dir / "logs").iterdir()} == {
        "param-server-0.log",
        "replay-0.log",
        "learner-0.log",
        "actor-0.log",
        "actor-1.log",
        "evaluator-0.log",
    }


def test_a_run_is_evaluated_and_gone_on_from(mycelia):
    first = finish(mycelia("train", "apex-cartpole", *SHORT, "--json"))

    scores = finish(mycelia("eval", first["run_dir"], "--episodes", "3", "--json"))
    again = mycelia("train", "apex-cartpole", *SHORT, f"resume={first['run_dir']}")
    assert again.end() == 2
    more = (*SHORT, "limits.max_env_steps=6000", f"resume={Path(first['run_dir']).name}")
    second = finish(mycelia("train", "apex-cartpole", *more, "--json"))

    assert scores["episodes"] == 3
    assert 0 < scores["eval_return_min"] <= scores["eval_return_mean"] <= 500
    assert "set a higher limit" in again.error_lines[0]
    assert second["env_steps"] >= 6000
    assert second["learner_steps"] > first["learner_steps"]
    assert second["run_dir"] != first["run_dir"]


def test_two_runs_at_once_do_not_touch_each_other(mycelia):
    commands = [
        mycelia("train", "apex-cartpole", *SHORT, f"name=run-{i}", "--json") for i in range(2)
    ]

    results = [finish(command) for command in commands]

    assert results[0]["run_dir"] != results[1]["run_dir"]
    for i, result in enumerate(results):
        assert f"run-{i}-" in result["run_dir"]
        assert 3000 <= result["env_steps"] < 6000


def test_services_started_by_hand_are_joined_and_watched(mycelia):
    server = mycelia("serve", "param-server", "--bind", "127.0.0.1:0")
    address = server.wait_for(r"ready address=(\S+)")[1]
    train = mycelia("train", "apex-cartpole", *SHORT, "--attach", address, "--json")
    train.wait_for("created run")
    watch = mycelia("train", "apex-cartpole", "--attach", address)
    watch.wait_for("following run")
    services = [
        mycelia("serve", service, "--join", address, *more)
        for service, *more in (
            ("learner",),
            ("replay",),
            ("actor",),
            ("actor", "--role", "evaluator"),
        )
    ]
    train.wait_for("training")
    status = mycelia("status", address, "--json")

    seen = finish(status)
    result = finish(train)

    assert {member["role"] for member in seen["members"]} == {
        "learner",
        "replay",
        "actor",
        "evaluator",
    }
    assert result["outcome"] == "step limit"
    assert watch.end() == 0
    assert [service.end() for service in services] == [0, 0, 0, 0], [s.text for s in services]
    assert server.process.poll() is None


def test_start_to_first_update_is_quick(mycelia):
    begin = time.time()

    result = finish(mycelia("train", "apex-cartpole", *SHORT, "--json"))

    assert result["start_seconds"] < time.time() - begin
