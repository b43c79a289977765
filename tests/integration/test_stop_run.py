"""Stopping runs: Ctrl-C, SIGTERM, crashes; nothing may be left behind."""

import os
import re
import signal
import socket
import time

import pytest

pytestmark = pytest.mark.timeout(120)

ENDLESS = (
    "replay.min_items_to_sample=200",
    "evaluation.solved_return=none",
    "limits.max_env_steps=100000000",
)
TOO_LONG_SECONDS = 10


@pytest.fixture
def training(mycelia):
    """A run that trains."""
    command = mycelia("train", "apex-cartpole", *ENDLESS)
    command.wait_for("training")
    return command


def run_dir(command, tmp_path):
    return tmp_path / command.wait_for(r"run folder (\S+)")[1]


def is_served(address):
    host, port = address.split(":")
    try:
        socket.create_connection((host, int(port)), timeout=1).close()
    except ConnectionRefusedError:
        return False
    return True


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 0)])
def test_a_signal_stops_all_in_time_with_a_checkpoint(training, tmp_path, number, code):
    children = training.children()
    address = training.wait_for(r"services join at (\S+);")[1]
    begin = time.monotonic()

    training.signal(number)

    assert training.end() == code, training.text
    assert time.monotonic() - begin < TOO_LONG_SECONDS
    assert len(children) == 6
    assert not training.left_over(children)
    assert not is_served(address)
    checkpoints = list((run_dir(training, tmp_path) / "checkpoint").glob("step-*"))
    assert checkpoints, training.text
    assert "stopped: on request" in training.text
    assert training.error_lines == []


def test_further_signals_are_harmless(training, tmp_path):
    children = training.children()

    for number in (signal.SIGINT, signal.SIGINT, signal.SIGTERM, signal.SIGINT):
        training.signal(number)
        time.sleep(0.1)

    assert training.end() == 130, training.text
    assert not training.left_over(children)
    assert list((run_dir(training, tmp_path) / "checkpoint").glob("step-*"))


@pytest.mark.parametrize("line", ["run folder", "services join"])
def test_a_stop_while_services_start_is_as_clean(mycelia, line):
    command = mycelia("train", "apex-cartpole", *ENDLESS)
    command.wait_for(line)
    time.sleep(0.3)
    children = command.children()
    begin = time.monotonic()

    command.signal(signal.SIGINT)

    assert command.end() == 130, command.text
    assert time.monotonic() - begin < TOO_LONG_SECONDS
    assert not command.left_over(children)


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("mycelia_learner", "learner-0"),
        ("mycelia_replay", "replay-0"),
        ("mycelia_param_server", "param-server-0"),
    ],
)
def test_a_crashed_service_is_reported_with_name_code_and_log(training, module, name):
    children = training.children()

    os.kill(training.child(module), signal.SIGKILL)

    assert training.end(30) == 1, training.text
    assert not training.left_over(children)
    assert re.search(rf"{name} ended unexpectedly with exit code -9 \(SIGKILL\)", training.text)
    assert any(line.startswith(f"  {name} | ") for line in training.error_lines)


def test_a_service_that_hangs_is_killed_in_time(training):
    children = training.children()
    os.kill(training.child("mycelia_replay"), signal.SIGSTOP)
    begin = time.monotonic()

    training.signal(signal.SIGTERM)

    assert training.end() == 0, training.text
    assert time.monotonic() - begin < TOO_LONG_SECONDS
    assert not training.left_over(children)


def test_services_go_when_the_command_is_killed(training):
    children = training.children()

    training.signal(signal.SIGKILL)

    training.end()
    assert not training.left_over(children, seconds=15)


def test_one_who_only_watches_leaves_without_stopping_the_run(training, mycelia):
    address = training.wait_for(r"services join at (\S+);")[1]
    watch = mycelia("train", "apex-cartpole", "--attach", address)
    watch.wait_for("following run")
    watch.wait_for("training")

    watch.signal(signal.SIGINT)

    assert watch.end() == 130, watch.text
    assert "left the run; it goes on" in watch.text
    assert training.process.poll() is None
    training.signal(signal.SIGINT)
    assert training.end() == 130, training.text
