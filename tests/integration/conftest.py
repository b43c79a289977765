"""Starts the command as a person would, and looks at what processes there are."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest


class Command:
    """A `mycelia` command that runs, and what it has printed so far."""

    def __init__(self, words, cwd):
        # Settings of the person who runs the tests must not change them.
        environ = {k: v for k, v in os.environ.items() if not k.startswith("MYCELIA__")}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "mycelia_cli", *words],
            cwd=cwd,
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self.folder = cwd
        self.lines, self.error_lines = [], []
        self._readers = [
            threading.Thread(target=self._read, args=pipe, daemon=True)
            for pipe in (
                (self.process.stdout, self.lines),
                (self.process.stderr, self.error_lines),
            )
        ]
        for reader in self._readers:
            reader.start()

    @staticmethod
    def _read(pipe, lines):
        with pipe:
            for line in pipe:
                lines.append(line.rstrip("\n"))

    @property
    def text(self):
        """All that it printed, for failing tests too."""
        return "\n".join([*self.lines, *self.error_lines])

    def wait_for(self, pattern, seconds=45):
        """Returns the match of a line of stdout."""
        deadline = time.monotonic() + seconds
        while True:
            for line in list(self.lines):
                if match := re.search(pattern, line):
                    return match
            assert self.process.poll() is None, self.text
            assert time.monotonic() < deadline, self.text
            time.sleep(0.02)

    def signal(self, number):
        """Sends a signal to the command alone."""
        self.process.send_signal(number)

    def end(self, seconds=60):
        """Waits for it and returns its exit code."""
        code = self.process.wait(seconds)
        for reader in self._readers:
            reader.join(10)
        return code

    def children(self):
        """Returns the process ids of the services it started, by their command lines."""
        return {pid: words for pid, parent, words in processes() if parent == self.process.pid}

    @staticmethod
    def left_over(pids, seconds=3.0):
        """Returns which of the processes are still there, given a moment to go."""
        deadline = time.monotonic() + seconds
        while True:
            there = {pid for pid, _, _ in processes()} & set(pids)
            if not there or time.monotonic() > deadline:
                return there
            time.sleep(0.05)

    def child(self, module):
        """Returns the process id of one service."""
        return next(pid for pid, words in self.children().items() if module in words)


def processes():
    """Yields (pid, parent's pid, command line) of every process that is not a zombie."""
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            state, parent = (folder / "stat").read_text().rpartition(")")[2].split()[:2]
            words = (folder / "cmdline").read_bytes().decode(errors="replace").split("\0")
            if state != "Z":
                yield int(folder.name), int(parent), words


@contextlib.contextmanager
def commands_in(folder):
    """Yields what starts commands in a folder; ends those that are left."""
    commands = []

    def start(*words):
        commands.append(Command(words, folder))
        return commands[-1]

    try:
        yield start
    finally:
        for command in commands:
            end_by_force(command)


def end_by_force(command):
    if command.process.poll() is None:
        children = command.children()
        command.process.kill()
        for pid in children:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)
    command.end()


@pytest.fixture
def mycelia(tmp_path):
    """Starts commands in a folder of their own."""
    with commands_in(tmp_path) as start:
        yield start


@pytest.fixture(scope="module")
def module_mycelia(tmp_path_factory):
    """Starts commands in a folder that the tests of a module share."""
    with commands_in(tmp_path_factory.mktemp("runs")) as start:
        yield start
