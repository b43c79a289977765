"""Opens a server's tables: new ones, or as a checkpoint left them."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from mycelia_replay.checkpoint.checkpointer import Checkpointer
from mycelia_replay.checkpoint.reading import Restored, restore
from mycelia_replay.checkpoint.storage import Storage
from mycelia_replay.gate import Gate
from mycelia_replay.server import ReplayServer
from mycelia_replay.table import Table

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Opened:
    """The tables that are served, and what saves them."""

    gates: Sequence[Gate]
    checkpointer: Checkpointer | None


async def open_tables(
    server: ReplayServer,
    run_id: str,
    make_tables: Callable[[], Sequence[Table]],
    storage: Storage | None,
) -> Opened:
    """Makes or restores tables and begins to serve them.

    Args:
      server: has started.
      run_id: whose tables they are; empty for nobody's.
      make_tables: makes them, with their settings; called once or more.
      storage: where to restore from and save to; None to do neither.

    Raises:
      ValueError: the settings contradict one another, or those of the checkpoint.
    """
    restored = await asyncio.to_thread(_restore, storage, run_id, make_tables)
    tables = restored.tables if restored else make_tables()
    gates = [Gate(table) for table in tables]
    checkpointer = None
    if storage:
        shared = restored and restored.path.parent == storage.folder
        segments = restored.segments if restored and shared else {}
        checkpointer = Checkpointer(storage.folder, run_id, tables, segments)
    server.open(run_id, gates, checkpointer)
    for table in tables:
        logger.info(
            "serving table %r of run %s: %d of %d rows, %.1f MB, columns %s",
            table.name,
            run_id or "(none)",
            table.row_count,
            table.config.capacity_rows,
            table.nbytes / 1e6,
            ", ".join(f"{column.name} {column}" for column in table.signature.columns),
        )
    return Opened(gates, checkpointer)


def _restore(
    storage: Storage | None, run_id: str, make_tables: Callable[[], Sequence[Table]]
) -> Restored | None:
    if storage is None:
        return None
    restored = restore(storage.folder, run_id, make_tables)
    if restored is None and storage.restore_from:
        restored = restore(storage.restore_from, None, make_tables)
    if restored:
        logger.info("restored %s", restored.path)
    return restored
