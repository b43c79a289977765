"""How a service process stops."""

import signal
import subprocess
import sys
import time

SERVICE = """
import sys, time
from mycelia_core.lifecycle import StopSignal
stop = StopSignal(exit_with_parent="--exit-with-parent" in sys.argv)
print("ready", flush=True)
assert stop.stopping.wait(20)
time.sleep(0.3)
print("stopped well", flush=True)
"""


def start(*arguments):
    process = subprocess.Popen(
        [sys.executable, "-c", SERVICE, *arguments], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "ready\n"
    return process


def test_a_second_signal_does_not_cut_the_stop_short():
    for number in (signal.SIGTERM, signal.SIGINT):
        with start() as process:
            process.send_signal(number)
            time.sleep(0.1)
            process.send_signal(number)

            assert process.stdout.read() == "stopped well\n"
        assert process.returncode == 0


PARENT = f"""
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", {SERVICE!r}, "--exit-with-parent"])
sys.stdin.read()
"""


def test_a_service_ends_with_the_launcher_that_is_killed():
    with subprocess.Popen(
        [sys.executable, "-c", PARENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout.readline() == "ready\n"

        parent.kill()

        # The pipe closes only when the child has ended too.
        assert parent.stdout.read() == "stopped well\n"
