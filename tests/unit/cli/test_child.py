"""Child processes, with real ones."""

import os
import signal
import threading
import time
from pathlib import Path

import pytest

from mycelia_cli.child import Child
from mycelia_cli.errors import CommandError

SERVES = "print('ready address=127.0.0.1:1', flush=True); import time; time.sleep(60)"


@pytest.fixture
def start(tmp_path):
    children = []

    def start(code):
        (tmp_path / "service_under_test.py").write_text(code)
        environ = {**os.environ, "PYTHONPATH": str(tmp_path)}
        child = Child(
            "replay-0",
            "service_under_test",
            [],
            log_path=tmp_path / "replay-0.log",
            environ=environ,
        )
        children.append(child)
        return child

    yield start
    for child in children:
        child.kill()


def wait_for(condition, seconds=10.0):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def exists(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_the_ready_line_gives_the_address(start):
    child = start(SERVES)

    assert child.wait_ready(20, threading.Event()) == "127.0.0.1:1"


def test_it_has_a_session_of_its_own_so_that_ctrl_c_does_not_reach_it(start):
    child = start(SERVES)

    assert os.getsid(child.pid) == child.pid != os.getsid(0)


def test_an_exit_ends_the_wait_and_is_told_with_name_code_and_log(start):
    child = start("import sys; print('out'); print('no port', file=sys.stderr); sys.exit(3)")

    assert child.wait_ready(20, threading.Event()) is None
    assert "replay-0 ended unexpectedly with exit code 3" in child.obituary()
    assert sorted(child.last_log_lines()) == ["no port", "out"]


def test_a_stop_ends_the_wait(start):
    stopping = threading.Event()
    stopping.set()

    assert start("import time; time.sleep(60)").wait_ready(20, stopping) is None


def test_one_that_is_never_ready_is_reported(start):
    with pytest.raises(CommandError, match="replay-0 was not ready after 0 s"):
        start("import time; time.sleep(60)").wait_ready(0.2, threading.Event())


def test_a_signal_that_was_not_ours_is_named(start):
    child = start(SERVES)
    child.wait_ready(20, threading.Event())

    os.kill(child.pid, signal.SIGKILL)
    wait_for(lambda: child.exit_code() is not None)

    assert child.exit_code() == -signal.SIGKILL
    assert "SIGKILL" in child.obituary()
    assert not child.asked_to_stop


def test_terminate_is_a_request_that_is_remembered(start):
    child = start(SERVES)
    child.wait_ready(20, threading.Event())

    child.terminate()

    assert child.wait(time.monotonic() + 10)
    assert child.asked_to_stop


def test_kill_takes_what_the_child_started_with_it(start):
    child = start(
        "import subprocess, sys, time\n"
        "sleeper = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
        "print(f'ready address={sleeper.pid}', flush=True)\n"
        "time.sleep(60)\n"
    )
    grandchild = int(child.wait_ready(20, threading.Event()))

    child.kill()
    child.kill()

    # An orphan is reaped by init, which may take a moment.
    wait_for(lambda: not exists(grandchild) or is_zombie(grandchild))
    assert child.exit_code() == -signal.SIGKILL


def is_zombie(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True
