"""The peer's side: a process of its own environment, asked line by line."""

import json
import subprocess
from pathlib import Path
from typing import Any

from benchmarks.peers.venv import HERE, peer_python


class PeerSide:
    """Measures the peer; its script makes rows, windows and batches as ours does."""

    def __init__(self, peer: str, frames: Path) -> None:
        """Installs the peer if need be, and starts its server and client."""
        command = [peer_python(peer), HERE / peer / "replay.py", frames]
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self._read()

    def measure(self, name: str, seconds: float) -> float:
        """Returns a rate."""
        assert self._process.stdin
        self._process.stdin.write(json.dumps({"name": name, "seconds": seconds}) + "\n")
        self._process.stdin.flush()
        return float(json.loads(self._read()))

    def close(self) -> None:
        """Stops the peer."""
        assert self._process.stdin
        self._process.stdin.close()
        self._process.wait(timeout=20)

    def _read(self) -> Any:
        assert self._process.stdout
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("the peer has ended; run its script by hand to see why")
        return line
