"""Training with workers' gradients from the command line, cut short by a small step limit."""

import json

import pytest

pytestmark = pytest.mark.timeout(120)

SHORT = (
    "limits.max_env_steps=6000",
    "evaluation.period_seconds=0.2",
    "evaluation.episodes=3",
    "evaluation.solved_return=none",
)


def finish(command):
    assert command.end() == 0, command.text
    return json.loads(command.lines[-1])


@pytest.mark.parametrize("preset", ["a3c-cartpole", "dppo-cartpole"])
def test_a_run_without_replay_ends_at_its_step_limit_with_all_its_files(mycelia, preset):
    command = mycelia("train", preset, *SHORT, "--json")
    command.wait_for("collecting|training")
    children = command.children()

    result = finish(command)

    # Parameter server, record-keeping learner, two workers, evaluator.
    assert len(children) == 5
    assert not command.left_over(children)
    assert result["outcome"] == "step limit"
    assert result["env_steps"] >= 6000
    assert result["learner_steps"] > 10
    assert result["eval_return_mean"] > 0
    run_dir = command.folder / result["run_dir"]
    for name in ("config.json", "metrics.jsonl", "curve.png", "checkpoint", "tensorboard"):
        assert (run_dir / name).exists(), name
    assert not (run_dir / "logs" / "replay-0.log").exists()
    kinds = {path.name.partition("-")[0] for path in (run_dir / "checkpoint").iterdir()}
    assert kinds == {"best", "step"}


def test_a_resumed_run_goes_on_from_the_weights_and_steps_of_the_first(mycelia):
    first = finish(mycelia("train", "a3c-cartpole", *SHORT, "--json"))
    # Workers that take thousands of steps a second are past the first limit by some of them.
    limit = first["env_steps"] + 3000
    words = (f"limits.max_env_steps={limit}", f"resume={first['run_dir']}", "--json")

    second = finish(mycelia("train", "a3c-cartpole", *SHORT, *words))

    assert second["env_steps"] >= limit
    assert second["learner_steps"] >= first["learner_steps"]
