"""Checkpoints on disk: written whole or not at all, and read back without torch.

RUN_DIR/checkpoint/
├── step-000001200/        all that an exact continuation needs; the last two are kept
│   ├── model.safetensors
│   └── state.json
└── best-000000950/        the weights of the best evaluation so far
"""

import json
import logging
import os
import re
import shutil
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy
from numpy.typing import NDArray

Array = NDArray[Any]

FOLDER = "checkpoint"
MODEL = "model.safetensors"
STATE = "state.json"
NETWORK = "network/"
"""How the names of the tensors begin that actors act with."""

FORMAT = 1
KEPT_STEPS = 2

logger = logging.getLogger(__name__)


class BrokenCheckpointError(ValueError):
    """A checkpoint is not whole; the text says where and why."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """One checkpoint in memory."""

    tensors: Mapping[str, Array]
    """`network/...`, and, but for the best weights, `target/...`, `optimizer/...`."""

    state: Mapping[str, Any]
    """JSON: `learner_step`, `env_steps`, what the algorithm adds."""


def write_step(run_dir: Path, checkpoint: Checkpoint) -> Path:
    """Writes a training state, then drops all but the last two. Takes milliseconds to seconds.

    A process killed at any moment leaves the ones before untouched.
    """
    path = _write(run_dir, f"step-{checkpoint.state['learner_step']:09d}", checkpoint)
    _drop(_steps(run_dir)[KEPT_STEPS:])
    return path


def write_best(run_dir: Path, checkpoint: Checkpoint) -> Path:
    """Writes the weights of the best evaluation so far, then drops the ones before."""
    path = _write(run_dir, f"best-{checkpoint.state['learner_step']:09d}", checkpoint)
    _drop([other for other in _named(run_dir, "best") if other != path])
    return path


def find_latest(run_dir: Path | str) -> Path | None:
    """Finds the newest whole training state; warns of broken ones and passes over them."""
    return _first_whole(_steps(Path(run_dir)))


def find_best(run_dir: Path | str) -> Path | None:
    """Finds the weights of the best evaluation, if any were written whole."""
    return _first_whole(_named(Path(run_dir), "best"))


def read(path: Path) -> Checkpoint:
    """Reads a checkpoint.

    Raises:
      BrokenCheckpointError: if it is not whole.
    """
    state = _read_state(path)
    content = _read_model(path, state)
    return Checkpoint(tensors=safetensors.numpy.load(content), state=state)


def load_weights(run_dir: Path | str) -> dict[str, Array]:
    """Loads the weights to act with: those of the best evaluation, else the newest ones.

    Raises:
      FileNotFoundError: if the run has no whole checkpoint.
    """
    path = find_best(run_dir) or find_latest(run_dir)
    if path is None:
        raise FileNotFoundError(f"no whole checkpoint in {Path(run_dir) / FOLDER}")
    tensors = read(path).tensors
    return {
        name.removeprefix(NETWORK): tensor
        for name, tensor in tensors.items()
        if name.startswith(NETWORK)
    }


def _write(run_dir: Path, name: str, checkpoint: Checkpoint) -> Path:
    final = run_dir / FOLDER / name
    if final.exists() and _first_whole([final]):
        return final  # the state after a given step is always the same
    aside = final.with_name(f".{name}.part")
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir(parents=True)
    content = safetensors.numpy.save(
        {name: np.ascontiguousarray(array) for name, array in checkpoint.tensors.items()}
    )
    state = dict(checkpoint.state) | {
        "format": FORMAT,
        "model_bytes": len(content),
        "model_crc32": zlib.crc32(content),
    }
    _write_through(aside / MODEL, content)
    _write_through(aside / STATE, json.dumps(state, indent=2).encode())
    _sync_folder(aside)
    shutil.rmtree(final, ignore_errors=True)
    aside.rename(final)
    _sync_folder(final.parent)
    return final


def _write_through(path: Path, content: bytes) -> None:
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _sync_folder(path: Path) -> None:
    # Without it a power cut may forget the names, however safe the contents are.
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _first_whole(paths: list[Path]) -> Path | None:
    for path in paths:
        try:
            _read_model(path, _read_state(path))
        except BrokenCheckpointError as error:
            logger.warning("passing over a broken checkpoint: %s", error)
        else:
            return path
    return None


def _read_state(path: Path) -> dict[str, Any]:
    try:
        state = json.loads((path / STATE).read_bytes())
        if state["format"] != FORMAT:
            raise BrokenCheckpointError(
                f"{path}: format {state['format']}, this version reads {FORMAT}"
            )
        return dict(state)
    except (OSError, json.JSONDecodeError, UnicodeDecodeError, KeyError, TypeError) as error:
        raise BrokenCheckpointError(f"{path / STATE}: {error!r}") from error


def _read_model(path: Path, state: Mapping[str, Any]) -> bytes:
    try:
        content = (path / MODEL).read_bytes()
    except OSError as error:
        raise BrokenCheckpointError(f"{path / MODEL}: {error!r}") from error
    if (len(content), zlib.crc32(content)) != (state.get("model_bytes"), state.get("model_crc32")):
        raise BrokenCheckpointError(
            f"{path / MODEL}: {len(content)} bytes, {state.get('model_bytes')} expected, "
            "or the checksum is wrong"
        )
    return content


def _steps(run_dir: Path) -> list[Path]:
    return _named(run_dir, "step")


def _named(run_dir: Path, kind: str) -> list[Path]:
    folder = run_dir / FOLDER
    if not folder.is_dir():
        return []
    found = [path for path in folder.iterdir() if re.fullmatch(rf"{kind}-\d+", path.name)]
    return sorted(found, key=lambda path: int(path.name.removeprefix(f"{kind}-")), reverse=True)


def _drop(paths: list[Path]) -> None:
    for path in paths:
        shutil.rmtree(path, ignore_errors=True)
