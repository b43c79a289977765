"""The command line: exit codes, and errors in one line."""

import json
import re
import tomllib

import pytest

from mycelia_cli.main import main


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["train", "apex-cartpol"], 'did you mean "apex-cartpole"'),
        (["train", "apex-cartpole", "learner.bach_size=1"], "learner.batch_size"),
        (["train", "apex-cartpole", "learner.batch_size=x"], "learner.batch_size"),
        (["train", "apex-cartpole", "resume=nowhere"], 'no run "nowhere"'),
        (["train", "apex-cartpole", "resume="], "resume= is empty"),
        (["train"], "PRESET"),
        (["train", "apex-cartpole", "--fast"], "--fast"),
        (["train", "apex-cartpole", "--log-level", "loud"], "loud"),
        (["config", "apex-cartpole", "x"], "expected key=value"),
        (["eval", "nowhere"], 'no run "nowhere"'),
        (["eval", "nowhere", "--episodes", "0"], "--episodes"),
        (["play", "nowhere"], 'no run "nowhere"'),
        (["play", "."], "not a run folder"),
        (["trai"], "train"),
        (["serve", "replays"], "replays"),
    ],
)
def test_bad_input_is_refused_in_one_line_with_exit_code_2(
    words, named, capsys, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)

    code = main(words)

    captured = capsys.readouterr()
    assert code == 2
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert captured.err.startswith("mycelia: ")
    assert named in captured.err
    assert list(tmp_path.iterdir()) == []


def test_a_registry_that_cannot_be_reached_is_one_line_and_exit_code_1(capsys):
    code = main(["status", "127.0.0.1:1"])

    captured = capsys.readouterr()
    assert code == 1
    assert captured.err.startswith("mycelia: cannot reach 127.0.0.1:1")
    assert captured.err.count("\n") == 1


def test_without_words_it_shows_what_there_is(capsys):
    code = main([])

    out = capsys.readouterr().out
    assert code == 0
    for command in ("train", "eval", "serve", "presets", "config", "status"):
        assert command in out


def test_presets_are_listed_with_their_line(capsys):
    code = main(["presets"])

    assert code == 0
    assert re.search(r"apex-cartpole +Ape-X DQN on CartPole-v1", capsys.readouterr().out)


def test_the_printed_config_is_a_preset_that_gives_the_same_config(capsys, tmp_path):
    words = [
        "learner.batch_size=5",
        'env.kwargs.greeting="a \\"b\\" ü"',
        "env.kwargs.deep={a=[1.5]}",
    ]
    main(["config", "apex-cartpole", *words])
    text = capsys.readouterr().out
    (tmp_path / "again.toml").write_text(text, encoding="utf-8")

    main(["config", "apex-cartpole", *words, "--json"])
    wanted = json.loads(capsys.readouterr().out)
    main(["config", str(tmp_path / "again.toml"), "--json"])
    again = json.loads(capsys.readouterr().out)

    assert tomllib.loads(text)["learner"]["batch_size"] == 5
    assert again == wanted
    assert "batch_size = 5  # command line" in text


def test_a_value_that_is_not_set_is_printed_as_a_comment(capsys):
    main(["config", "apex-cartpole", "evaluation.solved_return=none"])

    text = capsys.readouterr().out
    assert "# solved_return is not set" in text
    assert "solved_return" not in tomllib.loads(text)["evaluation"]


def test_a_service_reads_its_own_options(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["serve", "param-server", "--help"])

    assert ended.value.code == 0
    assert "--bind" in capsys.readouterr().out


def test_the_command_starts_without_heavy_libraries():
    import subprocess
    import sys

    script = (
        "import sys, mycelia_cli.main; "
        "print([m for m in ('torch', 'grpc', 'numpy', 'gymnasium') if m in sys.modules])"
    )
    out = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    ).stdout

    assert out.strip() == "[]"
