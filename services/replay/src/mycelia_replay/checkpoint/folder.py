"""The folder of checkpoints: what lies where, and how it gets there safely.

    FOLDER/
    ├── checkpoint-00000012/     committed by its rename; the newest two are kept
    │   ├── manifest.json        lists every other file with its size and checksum
    │   └── train.ring%2Fnext.raw  an array of `train`: raw little-endian bytes
    └── rows/                    rows never change, so later checkpoints share these
        └── train.00000000-00009216.12.observation.raw

A process killed at any moment leaves the checkpoints before as they were: files
are new ones, on disk before the rename, and dropped after it.
"""

import json
import logging
import os
import re
import shutil
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import quote

import numpy as np

from mycelia_replay.arrays import AnyArray

logger = logging.getLogger(__name__)

FORMAT = 1
KEPT = 2
MANIFEST = "manifest.json"
ROWS = "rows"

_NAME = re.compile(r"checkpoint-(\d+)")


class BrokenCheckpointError(ValueError):
    """A checkpoint is not whole; the text says which file and why."""


@dataclass(frozen=True, slots=True)
class FileEntry:
    """One raw file as the manifest lists it."""

    path: str
    """Relative to the folder."""

    dtype: str
    shape: tuple[int, ...]
    crc32: int

    def as_json(self) -> dict[str, Any]:
        """Returns what the manifest holds."""
        return {
            "path": self.path,
            "dtype": self.dtype,
            "shape": list(self.shape),
            "crc32": self.crc32,
        }

    @classmethod
    def from_json(cls, entry: dict[str, Any]) -> "FileEntry":
        """Reads it back.

        Raises:
          KeyError, TypeError: it is none.
        """
        return cls(entry["path"], entry["dtype"], tuple(entry["shape"]), entry["crc32"])


class RawFile:
    """A raw file that arrays of one dtype and row shape are appended to. One thread owns it."""

    def __init__(self, folder: Path, name: str) -> None:
        """Makes the file, or empties one that nobody refers to."""
        self._path = folder / name
        self._name = name
        self._file: BinaryIO = self._path.open("wb")
        self._crc32 = 0
        self._count = 0
        self._dtype = np.dtype(np.uint8)
        self._row_shape: tuple[int, ...] = ()

    def append(self, array: AnyArray) -> None:
        """Appends an array [n, ...] along its first axis."""
        content = np.ascontiguousarray(array)
        self._dtype, self._row_shape = content.dtype, content.shape[1:]
        view = content.reshape(-1).view(np.uint8).data
        self._file.write(view)
        self._crc32 = zlib.crc32(view, self._crc32)
        self._count += len(content)

    def commit(self) -> FileEntry:
        """Waits until the file is on disk, closes it and describes it."""
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        shape = (self._count, *self._row_shape)
        return FileEntry(self._name, self._dtype.name, shape, self._crc32)


def read_raw(folder: Path, entry: FileEntry) -> AnyArray:
    """Reads a raw file.

    Raises:
      BrokenCheckpointError: it is missing, or its size or checksum is wrong.
    """
    path = folder / entry.path
    try:
        content = np.fromfile(path, np.uint8)
    except OSError as error:
        raise BrokenCheckpointError(f"{path}: {error!r}") from error
    dtype = np.dtype(entry.dtype)
    expected = int(np.prod(entry.shape, dtype=np.int64)) * dtype.itemsize
    if dtype.hasobject or len(content) != expected:
        raise BrokenCheckpointError(f"{path}: {len(content)} bytes, expected {expected} of {dtype}")
    if zlib.crc32(content.data) != entry.crc32:
        raise BrokenCheckpointError(f"{path}: the checksum is wrong")
    return content.view(dtype).reshape(entry.shape)


def file_name(*parts: str) -> str:
    """Joins parts to a name that any file system takes."""
    return ".".join(quote(part, safe="") for part in parts) + ".raw"


def find_all(folder: Path) -> list[tuple[int, Path]]:
    """Finds the committed checkpoints, the newest first, with their numbers."""
    if not folder.is_dir():
        return []
    found = ((_NAME.fullmatch(path.name), path) for path in folder.iterdir())
    return sorted(((int(match[1]), path) for match, path in found if match), reverse=True)


def read_manifest(path: Path) -> dict[str, Any]:
    """Reads a checkpoint's manifest.

    Raises:
      BrokenCheckpointError: it is missing, of another format, or its checksum is wrong.
    """
    try:
        envelope = json.loads((path / MANIFEST).read_bytes())
        manifest, crc32 = envelope["manifest"], envelope["crc32"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BrokenCheckpointError(f"{path / MANIFEST}: {error!r}") from error
    if zlib.crc32(_canonical(manifest)) != crc32:
        raise BrokenCheckpointError(f"{path / MANIFEST}: the checksum is wrong")
    if manifest.get("format") != FORMAT:
        raise BrokenCheckpointError(
            f"{path / MANIFEST}: format {manifest.get('format')}, this version reads {FORMAT}"
        )
    return dict(manifest)


def prepare(folder: Path) -> tuple[int, Path]:
    """Makes room for the next checkpoint; returns its number and where to write it aside."""
    (folder / ROWS).mkdir(parents=True, exist_ok=True)
    for leftover in folder.glob(".checkpoint-*.part"):
        shutil.rmtree(leftover, ignore_errors=True)
    number = max((number for number, _ in find_all(folder)), default=0) + 1
    aside = folder / f".checkpoint-{number:08d}.part"
    aside.mkdir()
    return number, aside


def commit(folder: Path, number: int, aside: Path, manifest: dict[str, Any]) -> Path:
    """Commits what was written aside, and drops what no kept checkpoint needs."""
    manifest = {"format": FORMAT, **manifest}
    envelope = {"crc32": zlib.crc32(_canonical(manifest)), "manifest": manifest}
    with (aside / MANIFEST).open("wb") as file:
        file.write(json.dumps(envelope, indent=1).encode())
        file.flush()
        os.fsync(file.fileno())
    sync_folder(aside)
    sync_folder(folder / ROWS)
    final = folder / f"checkpoint-{number:08d}"
    aside.rename(final)
    sync_folder(folder)
    _drop_unneeded(folder)
    return final


def sync_folder(path: Path) -> None:
    """Waits until the names in a folder are on disk: a power cut forgets them otherwise."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def row_files(manifest: dict[str, Any]) -> Iterable[str]:
    """Returns the paths of the row files that a manifest refers to."""
    for table in manifest["tables"].values():
        for segment in table["segments"]:
            for entry in segment["columns"].values():
                yield entry["path"]


def _canonical(manifest: dict[str, Any]) -> bytes:
    return json.dumps(manifest, sort_keys=True).encode()


def _drop_unneeded(folder: Path) -> None:
    checkpoints = find_all(folder)
    for _, path in checkpoints[KEPT:]:
        shutil.rmtree(path, ignore_errors=True)
    needed: set[str] = set()
    for _, path in checkpoints[:KEPT]:
        try:
            needed.update(row_files(read_manifest(path)))
        except BrokenCheckpointError as error:
            logger.warning("a broken checkpoint is left where it is: %s", error)
    for path in (folder / ROWS).iterdir():
        if f"{ROWS}/{path.name}" not in needed:
            path.unlink(missing_ok=True)
