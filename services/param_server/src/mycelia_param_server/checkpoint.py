"""Checkpoints on disk: written whole or not at all. Safetensors and JSON, nothing that runs code.

DIR/
├── registry.json                 the run, its members and its progress
└── version-000001200/            the weights, and how to go on from them; the last two are kept
    ├── weights.safetensors
    └── state.json
"""

import json
import logging
import os
import re
import shutil
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy
from numpy.typing import NDArray

FORMAT = 1
KEPT_VERSIONS = 2
REGISTRY = "registry.json"
TENSORS = "weights.safetensors"
STATE = "state.json"
WEIGHTS = "weights/"
"""How the names of the weights begin in the file."""
OPTIMIZER = "optimizer/"
"""How the names of the optimizer's vectors begin in the file."""

logger = logging.getLogger(__name__)


class BrokenCheckpointError(ValueError):
    """A checkpoint is not whole; the text says where and why."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """One version of the weights, and all that an exact continuation needs."""

    tensors: Mapping[str, NDArray[Any]]
    """`weights/...`, and `optimizer/...` where this server applies gradients."""

    state: Mapping[str, Any]
    """JSON: `run_id`, `version`, `learner_step`, and what else the trainer remembers."""

    def under(self, prefix: str) -> dict[str, NDArray[Any]]:
        """Returns the tensors whose names begin with `prefix`, without it."""
        return {
            name.removeprefix(prefix): tensor
            for name, tensor in self.tensors.items()
            if name.startswith(prefix)
        }


def write_registry(folder: Path, registry: Mapping[str, Any]) -> None:
    """Replaces the registry's file, all at once."""
    folder.mkdir(parents=True, exist_ok=True)
    aside = folder / f".{REGISTRY}.part"
    _write_through(aside, json.dumps({"format": FORMAT, **registry}).encode())
    aside.replace(folder / REGISTRY)
    _sync_folder(folder)


def read_registry(folder: Path) -> dict[str, Any] | None:
    """Reads the registry's file; None if there is none.

    Raises:
      BrokenCheckpointError: it is not JSON, or of another format.
    """
    path = folder / REGISTRY
    if not path.exists():
        return None
    return _read_json(path)


def write(folder: Path, checkpoint: Checkpoint) -> Path:
    """Writes a version of the weights, then drops all but the last two.

    Takes milliseconds to seconds. A process killed at any moment leaves the ones before untouched.
    """
    final = folder / f"version-{checkpoint.state['version']:09d}"
    aside = final.with_name(f".{final.name}.part")
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir(parents=True)
    content = safetensors.numpy.save(
        {name: np.ascontiguousarray(array) for name, array in checkpoint.tensors.items()}
    )
    state = {
        **checkpoint.state,
        "format": FORMAT,
        "tensor_bytes": len(content),
        "tensor_crc32": zlib.crc32(content),
    }
    _write_through(aside / TENSORS, content)
    _write_through(aside / STATE, json.dumps(state, indent=1).encode())
    _sync_folder(aside)
    shutil.rmtree(final, ignore_errors=True)
    aside.rename(final)
    _sync_folder(folder)
    for old in _versions(folder)[KEPT_VERSIONS:]:
        shutil.rmtree(old, ignore_errors=True)
    return final


def read_newest(folder: Path, run_id: str | None) -> Checkpoint | None:
    """Reads the newest whole version of a run's weights, or of anybody's; warns of broken ones."""
    return next(_whole(folder, run_id), None)


def drop_others(folder: Path, run_id: str) -> None:
    """Deletes the weights of all runs but one."""
    for path in _versions(folder):
        try:
            belongs = _read_json(path / STATE).get("run_id") == run_id
        except BrokenCheckpointError:
            belongs = False
        if not belongs:
            shutil.rmtree(path, ignore_errors=True)


def _whole(folder: Path, run_id: str | None) -> Iterator[Checkpoint]:
    for path in _versions(folder):
        try:
            checkpoint = _read(path)
        except BrokenCheckpointError as error:
            logger.warning("passing over a broken checkpoint: %s", error)
            continue
        if run_id in (None, checkpoint.state.get("run_id")):
            yield checkpoint


def _read(path: Path) -> Checkpoint:
    state = _read_json(path / STATE)
    try:
        content = (path / TENSORS).read_bytes()
    except OSError as error:
        raise BrokenCheckpointError(f"{path / TENSORS}: {error!r}") from error
    expected = state.get("tensor_bytes"), state.get("tensor_crc32")
    if (len(content), zlib.crc32(content)) != expected:
        raise BrokenCheckpointError(
            f"{path / TENSORS}: {len(content)} bytes, {expected[0]} expected, "
            "or the checksum is wrong"
        )
    return Checkpoint(safetensors.numpy.load(content), state)


def _read_json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_bytes())
        if content["format"] != FORMAT:
            raise BrokenCheckpointError(
                f"{path}: format {content['format']}, this version reads {FORMAT}"
            )
        return dict(content)
    except (OSError, json.JSONDecodeError, UnicodeDecodeError, KeyError, TypeError) as error:
        raise BrokenCheckpointError(f"{path}: {error!r}") from error


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


def _versions(folder: Path) -> list[Path]:
    if not folder.is_dir():
        return []
    found = [path for path in folder.iterdir() if re.fullmatch(r"version-\d+", path.name)]
    return sorted(found, key=lambda path: int(path.name.removeprefix("version-")), reverse=True)
