"""Writes a snapshot of tables to the checkpoint folder, in a thread of its own."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mycelia_replay.checkpoint.folder import (
    ROWS,
    FileEntry,
    RawFile,
    commit,
    file_name,
    prepare,
)
from mycelia_replay.checkpoint.on_request import recipe
from mycelia_replay.row_hold import RowHold
from mycelia_replay.state import State
from mycelia_replay.table import Table

SEGMENT_BYTES = 64 * 1024 * 1024
"""About how large the rows are that are written together once, and then shared."""


@dataclass(frozen=True, slots=True)
class Segment:
    """Rows `[first_key, end_key)` of a table in files of their own."""

    first_key: int
    end_key: int
    columns: Mapping[str, FileEntry]

    def as_json(self) -> dict[str, Any]:
        """Returns what the manifest holds."""
        columns = {name: entry.as_json() for name, entry in self.columns.items()}
        return {"first_key": self.first_key, "end_key": self.end_key, "columns": columns}

    @classmethod
    def from_json(cls, entry: dict[str, Any]) -> "Segment":
        """Reads it back.

        Raises:
          KeyError, TypeError: it is none.
        """
        columns = {name: FileEntry.from_json(e) for name, e in entry["columns"].items()}
        return cls(entry["first_key"], entry["end_key"], columns)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A table as it was at one moment; its rows are read from the table's hold."""

    settings: dict[str, Any]
    state: State
    hold: RowHold
    made_from: dict[str, Any] | None

    @classmethod
    def of(cls, table: Table) -> "Snapshot":
        """Takes it. By the table's owner; takes milliseconds."""
        return cls(table_settings(table), table.state(), table.hold_rows(), recipe(table))


@dataclass(frozen=True, slots=True)
class Written:
    """What a checkpoint cost."""

    path: Path
    segments: dict[str, Sequence[Segment]]
    """By table: what the next checkpoint may share."""

    byte_count: int
    """How many bytes were written; what was shared is not counted."""


def table_settings(table: Table) -> dict[str, Any]:
    """Returns the settings that a table must share with the one it is restored from."""
    config, window = table.config, table.window
    signature = table.signature
    return {
        "signature": [
            [c.name, c.dtype.name, list(c.shape), c.codec.name]
            for c in (*signature.columns, *signature.item_columns)
        ],
        "capacity_rows": config.capacity_rows,
        "sampler": config.sampler,
        "max_times_sampled": config.max_times_sampled,
        "max_items": config.max_items,
        "remover": config.remover,
        "window": window.model_dump(mode="json"),
    }


def write(
    folder: Path,
    run_id: str,
    snapshots: Mapping[str, Snapshot],
    earlier: Mapping[str, Sequence[Segment]],
) -> Written:
    """Writes a checkpoint, waits until it is on disk and commits it.

    Args:
      folder: where checkpoints are.
      run_id: whose tables they are.
      snapshots: by table name.
      earlier: by table name, segments on disk that need not be written again.

    Raises:
      OSError: the disk is full, or the folder is not to be written.
    """
    number, aside = prepare(folder)
    tables: dict[str, Any] = {}
    segments: dict[str, Sequence[Segment]] = {}
    byte_count = 0
    for name, snapshot in snapshots.items():
        writer = _TableWriter(folder, number, name)
        segments[name] = writer.write_rows(snapshot.hold, earlier.get(name, ()))
        tables[name] = {
            "settings": snapshot.settings,
            "made_from": snapshot.made_from,
            "scalars": dict(snapshot.state.scalars),
            "arrays": writer.write_arrays(aside, snapshot.state),
            "segments": [segment.as_json() for segment in segments[name]],
        }
        byte_count += writer.byte_count
    path = commit(folder, number, aside, {"run_id": run_id, "tables": tables})
    return Written(path, segments, byte_count)


class _TableWriter:
    """Writes one table's part of one checkpoint."""

    def __init__(self, folder: Path, number: int, table: str) -> None:
        self.byte_count = 0
        self._folder = folder
        self._number = number
        self._table = table

    def write_arrays(self, aside: Path, state: State) -> dict[str, Any]:
        entries = {}
        for name, array in state.arrays.items():
            file = RawFile(aside, file_name(self._table, name))
            file.append(array)
            entries[name] = file.commit().as_json()
            self.byte_count += array.nbytes
        return entries

    def write_rows(self, hold: RowHold, earlier: Sequence[Segment]) -> list[Segment]:
        """Writes the segments that are not on disk; returns all, the oldest rows first."""
        row_count = hold.block_rows * max(1, SEGMENT_BYTES // max(1, hold.block_bytes))
        by_end = {segment.end_key: segment for segment in earlier}
        segments = []
        key = hold.first_key
        while key < hold.end_key:
            end = min(hold.end_key, key - key % row_count + row_count)
            known = by_end.get(end)
            if known and known.first_key <= key:
                segments.append(known)
                hold.skip_to(end)
            else:
                segments.append(self._write_segment(hold, key, end))
            key = end
        return segments

    def _write_segment(self, hold: RowHold, first_key: int, end_key: int) -> Segment:
        label = f"{first_key:08d}-{end_key:08d}.{self._number}"
        files: dict[str, RawFile] = {}
        key = first_key
        while key < end_key:
            _, count, columns = hold.next_block()
            for name, values in columns.items():
                if name not in files:
                    path = f"{ROWS}/{file_name(self._table, label, name)}"
                    files[name] = RawFile(self._folder, path)
                files[name].append(values)
                self.byte_count += values.nbytes
            key += count
        return Segment(first_key, end_key, {name: file.commit() for name, file in files.items()})
