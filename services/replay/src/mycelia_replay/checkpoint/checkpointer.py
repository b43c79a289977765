"""Saves tables now and then, and on request, while they go on."""

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from mycelia_core.rpc.errors import FailedPreconditionError
from mycelia_replay.checkpoint.writing import Segment, Snapshot, Written, write
from mycelia_replay.table import Table

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Saved:
    """A checkpoint that is on disk, and what it cost."""

    path: Path
    byte_count: int
    """Written for it; rows that an earlier checkpoint has written are not counted."""

    pause_seconds: float
    """How long the tables did nothing else."""

    write_seconds: float
    """How long the writing took meanwhile."""

    time: float
    """When it was on disk, in seconds since 1970."""


class Checkpointer:
    """Saves the tables of one server. The event loop that owns the tables owns it."""

    def __init__(
        self,
        folder: Path,
        run_id: str,
        tables: Sequence[Table],
        earlier: Mapping[str, Sequence[Segment]] | None = None,
    ) -> None:
        """Saves nothing yet.

        Args:
          folder: where checkpoints go.
          run_id: whose tables they are.
          tables: what to save.
          earlier: by table, the rows on disk of the checkpoint that they were restored from.
        """
        self._folder = folder
        self._run_id = run_id
        self._tables = list(tables)
        self._segments: dict[str, Sequence[Segment]] = dict(earlier or {})
        self._turn = asyncio.Lock()
        self._saving: set[asyncio.Future[Saved]] = set()
        self.saved_count = 0
        self.last: Saved | None = None
        """The newest checkpoint of this process."""

    def add(self, table: Table) -> None:
        """Saves this table too from now on."""
        self._tables.append(table)

    async def save(self) -> Saved:
        """Saves all tables as they are now; one save at a time, others wait.

        Raises:
          FailedPreconditionError: it could not be written; the ones before are as they were.
        """
        # Whoever asked may be cancelled. The thread goes on reading then, and the
        # hold must stay for it.
        saving = asyncio.ensure_future(self._save())
        self._saving.add(saving)
        saving.add_done_callback(self._saving.discard)
        return await asyncio.shield(saving)

    async def save_every(self, period_seconds: float) -> None:
        """Saves on and on, until it is cancelled; a failure is logged and tried again."""
        while True:
            await asyncio.sleep(period_seconds)
            await self.try_to_save()

    async def try_to_save(self) -> None:
        """Saves; logs what goes wrong."""
        try:
            await self.save()
        except FailedPreconditionError as error:
            logger.error("%s", error)

    async def _save(self) -> Saved:
        async with self._turn:
            start = time.monotonic()
            # No await before the last snapshot: all tables at one moment.
            tables = list(self._tables)
            snapshots = {table.name: Snapshot.of(table) for table in tables}
            pause = time.monotonic() - start
            try:
                written = await asyncio.to_thread(
                    write, self._folder, self._run_id, snapshots, self._segments
                )
            except OSError as error:
                raise FailedPreconditionError(f"no checkpoint was written: {error}") from error
            finally:
                for table in tables:
                    table.let_rows_go()
            return self._note(written, pause, time.monotonic() - start)

    def _note(self, written: Written, pause: float, total: float) -> Saved:
        self._segments = written.segments
        self.saved_count += 1
        self.last = Saved(written.path, written.byte_count, pause, total, time.time())
        logger.info(
            "saved %s: %.1f MB in %.2f s, tables paused for %.1f ms",
            written.path,
            written.byte_count / 1e6,
            total,
            pause * 1e3,
        )
        return self.last
