"""One worker process, as the actor holds it: started, talked to, looked into, killed."""

import contextlib
import json
import logging
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from typing import Any

from mycelia_actor.environments.worker import ERROR, STACK_SIGNAL, Task

_STACK_SECONDS = 1.0
"""How long a hanging worker may take to write its stacks."""

_END_SECONDS = 1.0
"""How long a worker may take to close its environments when it is not needed any more."""


class WorkerGoneError(Exception):
    """The worker process has ended."""


class WorkerError(Exception):
    """What a worker said before it ended: no restart would help."""


class WorkerProcess:
    """A running worker. One thread owns it."""

    def __init__(self, task: Task, memory: int) -> None:
        """Starts it; `memory` is the descriptor of the memory to share."""
        ours, theirs = socket.socketpair()
        self._socket = ours
        self._stacks = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the process
        inherited = (theirs.fileno(), memory, self._stacks.fileno())
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "mycelia_actor.environments.worker", *map(str, inherited)],
                pass_fds=inherited,
                stdin=subprocess.DEVNULL,
                # What environments print must not look like what a service says.
                stdout=sys.stderr.fileno() if _has_descriptor(sys.stderr) else subprocess.DEVNULL,
                env=os.environ | {"OPENBLAS_NUM_THREADS": "1"},
            )
        with contextlib.suppress(OSError):
            self._socket.sendall(task.encode())

    def fileno(self) -> int:
        """Returns the descriptor that becomes readable when the worker says something."""
        return self._socket.fileno()

    def send(self, letter: bytes) -> None:
        """Sends a letter; that the worker is gone shows with `receive`."""
        with contextlib.suppress(OSError):
            self._socket.sendall(letter)

    def receive(self) -> bytes | None:
        """Returns the letter that has come, or None if none has.

        Raises:
          WorkerGoneError: the worker has ended.
          WorkerError: the worker says that it cannot go on.
        """
        try:
            letter = self._socket.recv(1, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return None
        except OSError as error:
            raise WorkerGoneError from error
        if not letter:
            raise WorkerGoneError
        if letter == ERROR:
            raise WorkerError(self._read_line())
        return letter

    def receive_fields(self) -> list[Any] | None:
        """Returns the fields that a worker announces first, or None if they have not come.

        Raises: what `receive` raises.
        """
        letter = self.receive()
        return None if letter is None else list(json.loads(letter.decode() + self._read_line()))

    def stack(self) -> str:
        """Returns the stacks of the worker's threads, if it still can tell them."""
        if self._process.poll() is None:
            self._process.send_signal(STACK_SIGNAL)
            self._wait_for_stack()
        self._stacks.seek(0)
        return self._stacks.read().decode(errors="replace").strip()

    def ending(self) -> str:
        """Says how the process ended; call when it is gone."""
        try:
            code = self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            return "closed its connection"
        return f"was ended by {signal.Signals(-code).name}" if code < 0 else f"exited with {code}"

    def end(self, *, by_force: bool) -> None:
        """Ends the process."""
        self._socket.close()
        try:
            if not by_force:
                self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            pass
        self._process.kill()
        self._process.wait()
        self._stacks.close()

    def _read_line(self) -> str:
        self._socket.settimeout(_END_SECONDS)
        try:
            with self._socket.makefile("rb") as file:
                return file.readline().decode(errors="replace").strip()
        except OSError as error:
            raise WorkerGoneError from error
        finally:
            self._socket.settimeout(None)

    def _wait_for_stack(self) -> None:
        descriptor = self._stacks.fileno()
        end, size = time.monotonic() + _STACK_SECONDS, -1
        # A signal handler writes it line by line: it is whole when it grows no more.
        while time.monotonic() < end:
            before, size = size, os.fstat(descriptor).st_size
            if size == before and size > 0:
                return
            time.sleep(0.02)


def _has_descriptor(stream: Any) -> bool:
    try:
        return bool(stream.fileno() >= 0)
    except (OSError, ValueError, AttributeError):
        logging.getLogger(__name__).debug("stderr has no descriptor")
        return False
