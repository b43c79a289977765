"""Reads tables back from the newest checkpoint that is whole."""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mycelia_replay.checkpoint.folder import (
    BrokenCheckpointError,
    FileEntry,
    find_all,
    read_manifest,
    read_raw,
)
from mycelia_replay.checkpoint.on_request import make_again
from mycelia_replay.checkpoint.writing import Segment, table_settings
from mycelia_replay.state import State, UnfitStateError
from mycelia_replay.table import Table

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Restored:
    """Tables that go on where a checkpoint left them."""

    path: Path
    tables: Sequence[Table]
    segments: dict[str, Sequence[Segment]]
    """By table: what the next checkpoint may share."""


def restore(
    folder: Path, run_id: str | None, make_tables: Callable[[], Sequence[Table]]
) -> Restored | None:
    """Restores the newest whole checkpoint; warns of broken ones and passes over them.

    Args:
      folder: where checkpoints are.
      run_id: whose; None for anybody's.
      make_tables: makes the tables anew, with their settings.

    Returns:
      None if there is no such checkpoint.

    Raises:
      ValueError: the newest whole one was made with other settings.
    """
    for _, path in find_all(folder):
        tables = list(make_tables())
        try:
            manifest = read_manifest(path)
            if run_id is not None and manifest["run_id"] != run_id:
                logger.warning("%s is of run %s, not of this one", path, manifest["run_id"])
                return None
            tables += make_again(manifest["tables"])
            segments = {t.name: _restore_table(folder, path, manifest, t) for t in tables}
        except (BrokenCheckpointError, UnfitStateError, KeyError, TypeError) as error:
            logger.warning("passing over a broken checkpoint: %s: %r", path, error)
        else:
            return Restored(path, tables, segments)
    return None


def _restore_table(
    folder: Path, path: Path, manifest: dict[str, Any], table: Table
) -> Sequence[Segment]:
    saved = manifest["tables"].get(table.name)
    if saved is None:
        logger.warning("%s has no table %r: it begins empty", path, table.name)
        return ()
    _check_settings(path, table, saved["settings"])
    arrays = {
        name: read_raw(path, FileEntry.from_json(entry)) for name, entry in saved["arrays"].items()
    }
    table.load_state(State(arrays, saved["scalars"]))
    segments = [Segment.from_json(entry) for entry in saved["segments"]]
    oldest_key = table.oldest_key
    for segment in segments:
        columns = {name: read_raw(folder, entry) for name, entry in segment.columns.items()}
        # The oldest rows of a shared segment may have been overwritten since.
        table.load_rows(segment.first_key, columns, max(0, oldest_key - segment.first_key))
    table.begin_life()
    return segments


def _check_settings(path: Path, table: Table, saved: Mapping[str, Any]) -> None:
    for name, wanted in table_settings(table).items():
        if saved.get(name) != wanted:
            raise ValueError(
                f"{path} cannot be restored: table {table.name!r} had {name}={saved.get(name)}, "
                f"now {name}={wanted}"
            )
