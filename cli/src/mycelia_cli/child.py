"""A child process: one service of a run, in a session of its own, logging to a file."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

from mycelia_cli.errors import CommandError

_READY = "ready address="
_POLL_SECONDS = 0.02


class Child:
    """Runs `python -m <module>`; owned by the thread that made it.

    The session of its own keeps the terminal's Ctrl-C from it: only the
    launcher hears that, and stops services in their order.
    """

    def __init__(
        self,
        name: str,
        module: str,
        arguments: Sequence[str],
        *,
        log_path: Path,
        environ: Mapping[str, str],
    ) -> None:
        """Starts the process.

        Args:
          name: what messages call it, for example `actor-0`.
          module: what `python -m` runs.
          arguments: its command line.
          log_path: where its stderr goes, and its stdout but for the ready line.
          environ: all of its environment.
        """
        self.name = name
        self.log_path = log_path
        self.asked_to_stop = False
        """Whether a signal was sent to it from here: its exit code means nothing then."""
        self._ready = threading.Event()
        self._address = ""
        self._log = log_path.open("ab", buffering=0)
        self._process = subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=self._log,
            env=dict(environ),
            start_new_session=True,
        )
        assert self._process.stdout is not None
        self._reader = threading.Thread(
            target=self._read, args=(self._process.stdout,), name=f"{name}-stdout", daemon=True
        )
        self._reader.start()

    @property
    def pid(self) -> int:
        """Its process id, and that of its process group."""
        return self._process.pid

    def exit_code(self) -> int | None:
        """Returns how it exited, negative for a signal; None while it runs."""
        return self._process.poll()

    def wait_ready(self, timeout_seconds: float, stopping: threading.Event) -> str | None:
        """Waits for the line that says where the service listens.

        Returns:
          The address; None if `stopping` was set first, or if it exited.

        Raises:
          CommandError: the time is over.
        """
        deadline = time.monotonic() + timeout_seconds
        while not self._ready.wait(_POLL_SECONDS):
            if stopping.is_set() or self.exit_code() is not None:
                return None
            if time.monotonic() > deadline:
                raise CommandError(
                    f"{self.name} was not ready after {timeout_seconds:.0f} s; see {self.log_path}"
                )
        return self._address

    def wait(self, deadline: float) -> bool:
        """Waits until it has exited, or until `time.monotonic()` passes the deadline."""
        while self.exit_code() is None:
            if time.monotonic() >= deadline:
                return False
            time.sleep(_POLL_SECONDS)
        return True

    def terminate(self) -> None:
        """Asks it to stop; does nothing if it has."""
        if self.exit_code() is None:
            self.asked_to_stop = True
            self._process.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Ends it and whatever it started. Safe to call again."""
        self.asked_to_stop |= self.exit_code() is None
        # The group outlives its leader while the environments that an actor
        # started are there, so it is killed whether or not the leader lives.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        self._process.wait()
        self._log.close()

    def obituary(self) -> str:
        """Returns one line on how it ended."""
        code = self.exit_code()
        how = f"exit code {code}"
        if code is not None and code < 0:
            how += f" ({signal.Signals(-code).name})"
        return f"{self.name} ended unexpectedly with {how}; its log is {self.log_path}"

    def last_log_lines(self, count: int = 10) -> list[str]:
        """Returns the end of its log."""
        self._reader.join(timeout=1)
        with contextlib.suppress(OSError):
            text = self.log_path.read_text(encoding="utf-8", errors="replace")
            return text.splitlines()[-count:]
        return []

    def _read(self, stdout: IO[bytes]) -> None:
        with stdout:
            for line in stdout:
                text = line.decode(errors="replace").strip()
                if text.startswith(_READY) and not self._ready.is_set():
                    self._address = text.removeprefix(_READY)
                    self._ready.set()
                else:
                    self._pass_on(line)

    def _pass_on(self, line: bytes) -> None:
        # Closed once the process has been killed; the rest is of no interest.
        with contextlib.suppress(ValueError, OSError):
            self._log.write(line)
