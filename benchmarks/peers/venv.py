"""Makes the virtual environment of a peer, once."""

import hashlib
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]


def peer_python(peer: str) -> Path:
    """Returns the Python of a peer's own environment, made from its requirements if need be."""
    folder = HERE / peer
    requirements = (folder / "requirements.txt").read_bytes()
    venv, ready = folder / ".venv", folder / ".venv" / ".ready"
    digest = hashlib.sha256(requirements).hexdigest()
    if not ready.exists() or ready.read_text() != digest:
        print(f"installing the peer {peer} into {venv.relative_to(ROOT)}", file=sys.stderr)
        subprocess.run([sys.executable, "-m", "venv", venv], check=True)
        if b"torch" in requirements:
            settings = _torch_settings()
            subprocess.run([ROOT / ".ci/install-torch", venv / "bin", *settings], check=True)
        pip = [venv / "bin/pip", "install", "-q", "-r", folder / "requirements.txt"]
        subprocess.run(pip, check=True)
        ready.write_text(digest)
    return venv / "bin/python"


def _torch_settings() -> list[str]:
    lines = (ROOT / "Makefile").read_text().splitlines()
    values = dict(line.split(" ?= ", 1) for line in lines if " ?= " in line)
    return [values["TORCH"], values["TORCH_VERSION"], values["TORCH_INDEX"]]
