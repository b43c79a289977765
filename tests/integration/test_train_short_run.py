"""Training from the command line with real services, cut short by a small step limit."""

import json
import re
import shutil
import signal
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.timeout(120)

SHORT = (
    "limits.max_env_steps=4000",
    "replay.min_items_to_sample=200",
    # Actors wait for the learner soon, so that it takes steps before the limit.
    "replay.error_buffer=8192",
    "evaluation.period_seconds=0.2",
    "evaluation.episodes=3",
    "evaluation.solved_return=none",
)


def finish(command):
    assert command.end() == 0, command.text
    return json.loads(command.lines[-1])


@pytest.fixture(scope="module")
def short_run(module_mycelia):
    """A run from start to end: the command, its services, its result."""
    command = module_mycelia("train", "apex-cartpole", *SHORT, "--json")
    command.wait_for("collecting|training")
    children = command.children()
    return command, children, finish(command)


def test_a_run_ends_at_its_step_limit_and_says_so(short_run):
    command, children, result = short_run

    assert len(children) == 6
    assert not command.left_over(children)
    assert result["solved"] is False
    assert result["outcome"] == "step limit"
    assert result["env_steps"] >= 4000
    assert result["learner_steps"] > 100
    assert result["eval_return_mean"] > 0
    assert result["seconds_to_solve"] is None
    assert 0 < result["seconds"] < result["total_seconds"]
    assert 0 < result["start_seconds"] < 30
    assert any("resume=" in line for line in command.lines)


def test_a_run_leaves_all_its_files(short_run):
    command, _, result = short_run

    run_dir = command.folder / result["run_dir"]
    assert run_dir.parent == command.folder / "runs"
    for name in ("config.json", "metrics.jsonl", "curve.png", "checkpoint", "tensorboard"):
        assert (run_dir / name).exists(), name
    assert json.loads((run_dir / "config.json").read_text())["limits"]["max_env_steps"] == 4000
    assert {path.stem for path in (run_dir / "logs").iterdir()} == {
        "param-server-0",
        "replay-0",
        "learner-0",
        "actor-0",
        "actor-1",
        "evaluator-0",
    }


def test_a_run_is_evaluated_from_its_folder(short_run, module_mycelia):
    _, _, result = short_run

    scores = finish(module_mycelia("eval", result["run_dir"], "--episodes", "3", "--json"))

    assert scores["episodes"] == 3
    assert 0 < scores["eval_return_min"] <= scores["eval_return_mean"] <= 500
    assert scores["run_dir"] == result["run_dir"]


def test_an_episode_of_a_run_is_recorded(short_run, module_mycelia):
    _, _, result = short_run
    words = ("--episodes", "1", "--video", "--json")

    scores = finish(module_mycelia("eval", result["run_dir"], *words))

    video = short_run[0].folder / scores["video"]
    assert video.parent.name == "videos"
    # What it is and how many frames it has is tested where it is written.
    assert video.stat().st_size > 1000


@pytest.fixture
def brief_run(short_run, tmp_path, monkeypatch):
    """A copy of the run whose episodes take a second in a window, and a screen to show them on."""
    pytest.importorskip("pygame")
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    shutil.copytree(short_run[0].folder / short_run[2]["run_dir"], tmp_path / "brief")
    path = tmp_path / "brief" / "config.json"
    config = json.loads(path.read_text())
    config["env"]["kwargs"] = {"max_episode_steps": 50}
    path.write_text(json.dumps(config))
    return str(path.parent)


def test_an_episode_of_a_run_is_played_in_a_window(brief_run, mycelia):
    play = mycelia("play", brief_run, "--episodes", "1")

    assert play.end() == 0, play.text
    (line,) = play.lines
    assert re.fullmatch(r"CartPole-v1: return \d+\.0", line)


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, -signal.SIGTERM)]
)
def test_a_signal_ends_the_playing_at_once(brief_run, mycelia, number, code):
    play = mycelia("play", brief_run)
    play.wait_for("CartPole-v1: return ")
    begin = time.monotonic()

    play.signal(number)

    assert play.end() == code, play.text
    assert time.monotonic() - begin < 3.0
    assert play.error_lines == []


@pytest.mark.parametrize("word", ["eval", "play"])
def test_a_run_without_a_checkpoint_is_not_played(short_run, mycelia, tmp_path, word):
    command, _, result = short_run
    (tmp_path / "young").mkdir()
    shutil.copy(command.folder / result["run_dir"] / "config.json", tmp_path / "young")

    refused = mycelia(word, "young")

    assert refused.end() == 2
    (line,) = refused.error_lines
    assert line.startswith('mycelia: "young" has no weights to play with: no whole checkpoint')


def test_a_run_is_gone_on_from(short_run, module_mycelia):
    _, _, result = short_run
    name = Path(result["run_dir"]).name
    more = (*SHORT, "limits.max_env_steps=6000", f"resume={name}", "--json")

    second = finish(module_mycelia("train", "apex-cartpole", *more))

    assert second["env_steps"] >= 6000
    assert second["learner_steps"] > result["learner_steps"]
    assert second["run_dir"] != result["run_dir"]


def test_a_resumed_run_begins_with_the_rows_of_the_first(short_run, module_mycelia):
    _, _, result = short_run
    more = (*SHORT, "limits.max_env_steps=6000", f"resume={result['run_dir']}")

    second = module_mycelia("train", "apex-cartpole", *more)

    assert second.end() == 0, second.text
    first_dir = short_run[0].folder / result["run_dir"]
    lines = [json.loads(line) for line in (first_dir / "metrics.jsonl").read_text().splitlines()]
    last_seen = max(line.get("replay_rows", 0) for line in lines)
    assert rows_at_start(first_dir) == 0
    assert last_seen > 200
    assert rows_at_start(second.folder / found_run_dir(second)) >= last_seen


def found_run_dir(command):
    return command.wait_for(r"run folder (\S+)")[1]


def rows_at_start(run_dir):
    log = (run_dir / "logs" / "replay-0.log").read_text()
    return int(re.search(r"serving table 'train' of run \w+: (\d+) of \d+ rows", log)[1])


def test_rows_are_neither_kept_nor_restored_if_one_does_not_want_that(short_run, module_mycelia):
    _, _, result = short_run
    more = (*SHORT, "limits.max_env_steps=6000", "replay.keep_rows=false")

    second = module_mycelia("train", "apex-cartpole", *more, f"resume={result['run_dir']}")

    assert second.end() == 0, second.text
    run_dir = second.folder / found_run_dir(second)
    assert not (run_dir / "state").exists()
    assert rows_at_start(run_dir) == 0


def test_a_run_that_is_over_its_limit_is_not_gone_on_from(short_run, module_mycelia):
    _, _, result = short_run
    lower = ("limits.max_env_steps=1000", f"resume={result['run_dir']}")

    again = module_mycelia("train", "apex-cartpole", *lower)

    assert again.end() == 2
    assert "set a higher limit" in again.error_lines[0]


def test_two_runs_at_once_do_not_touch_each_other(mycelia):
    commands = [
        mycelia("train", "apex-cartpole", *SHORT, f"name=run-{i}", "--json") for i in range(2)
    ]

    results = [finish(command) for command in commands]

    for i, result in enumerate(results):
        assert f"run-{i}-" in result["run_dir"]
        assert 4000 <= result["env_steps"] < 8000


def test_services_started_by_hand_are_joined_and_watched(mycelia):
    server = mycelia("serve", "param-server", "--bind", "127.0.0.1:0")
    address = server.wait_for(r"ready address=(\S+)")[1]
    longer = (*SHORT, "limits.max_env_steps=20000")
    train = mycelia("train", "apex-cartpole", *longer, "--attach", address, "--json")
    train.wait_for("created run")
    watch = mycelia("train", "apex-cartpole", "--attach", address)
    watch.wait_for("following run")
    roles = {
        "learner": ("learner",),
        "replay": ("replay",),
        "actor": ("actor",),
        "evaluator": ("actor", "--role", "evaluator"),
    }
    services = [mycelia("serve", *words, "--join", address) for words in roles.values()]
    train.wait_for(r"\| training")

    seen = finish(mycelia("status", address, "--json"))
    result = finish(train)

    assert {member["role"] for member in seen["members"]} == set(roles)
    assert result["outcome"] == "step limit"
    assert watch.end() == 0
    assert [service.end() for service in services] == [0] * 4, [s.text for s in services]
    assert server.process.poll() is None
