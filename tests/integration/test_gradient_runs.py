"""Training with workers' gradients from the command line, cut short by a small step limit."""

import json
import signal
import time

import pytest

from mycelia_core.clients.gradients import GradientClient
from mycelia_core.clients.run import RunClient

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


def test_a_run_ends_at_its_limit_of_updates_and_is_gone_on_from_with_a_higher_one(mycelia):
    limited = (*SHORT, "limits.max_env_steps=3000000", "limits.max_updates=40")
    first = finish(mycelia("train", "a2c-cartpole", *limited, "--json"))
    again = mycelia("train", "a2c-cartpole", *limited, f"resume={first['run_dir']}")

    assert first["outcome"] == "step limit"
    # Workers push on until they hear of the end.
    assert 40 <= first["learner_steps"] < 1000
    assert again.end() == 2
    assert "updates behind it, and limits.max_updates=40" in again.error_lines[0]


def test_a_resumed_run_goes_on_from_the_weights_and_steps_of_the_first(mycelia):
    first = finish(mycelia("train", "a3c-cartpole", *SHORT, "--json"))
    # Workers that take thousands of steps a second are past the first limit by some of them.
    limit = first["env_steps"] + 3000
    words = (f"limits.max_env_steps={limit}", f"resume={first['run_dir']}", "--json")

    second = finish(mycelia("train", "a3c-cartpole", *SHORT, *words))

    assert second["env_steps"] >= limit
    assert second["learner_steps"] >= first["learner_steps"]


def test_a_resumed_run_goes_on_with_the_optimizer_and_version_of_the_first(mycelia):
    first = mycelia("train", "a3c-cartpole", *SHORT, "--json")
    result = finish(first)
    # SIGTERM of the parameter server, which comes last, writes the last one.
    saved = newest_state(first.folder / result["run_dir"])
    limits = (f"limits.max_env_steps={result['env_steps'] + 100_000_000}",)
    second = mycelia("train", "a3c-cartpole", *SHORT, *limits, f"resume={result['run_dir']}")
    address = second.wait_for(r"services join at (\S+);")[1]

    with RunClient(address) as client:
        run = client.wait_for_run(10)
        with GradientClient(address, run.run_id) as gradients:
            wait_until(lambda: gradients.info().update_count)
            info = gradients.info()

    seen = finish(mycelia("status", address, "--json"))
    second.wait_for(r"training .* gradients [\d,]+ applied .*staleness [\d.]+ mean, \d+ max")
    assert seen["gradients"]["applied"] >= info.push_counts["applied"]
    assert seen["gradients"]["staleness_mean"] <= seen["gradients"]["staleness_max"]
    assert seen["gradients"]["rounds"] is None
    assert "replay_rows" not in seen
    assert "replay" not in second.text
    assert saved["step_count"] > 10
    applied = info.push_counts["applied"]
    assert info.update_count == saved["step_count"] + applied
    assert info.version == saved["version"] + applied
    second.signal(signal.SIGTERM)
    assert second.end() == 0, second.text


def newest_state(run_dir):
    folder = max((run_dir / "state" / "param-server-0").glob("version-*"))
    return json.loads((folder / "state.json").read_text())


def wait_until(condition, seconds=30.0):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)
