"""The gate of a table: makes callers wait for the rate limiter, first come, first served."""

import asyncio
import logging
import time
from collections.abc import Callable

import numpy as np

from mycelia_core.rpc.errors import FailedPreconditionError, UnavailableError
from mycelia_replay.columns.column import Allocate
from mycelia_replay.rows import Rows
from mycelia_replay.table import Table
from mycelia_replay.table_results import Inserted, Sampled

logger = logging.getLogger(__name__)

LOG_PERIOD_SECONDS = 10.0
"""How often a wait that goes on says what it waits for."""


class Gate:
    """Lets callers at a table when its rate limiter allows. One event loop owns it."""

    def __init__(self, table: Table) -> None:
        """Takes ownership of the table."""
        self.table = table
        self.inserts = Line(f"table {table.name!r}: insert")
        self.samples = Line(f"table {table.name!r}: sample")
        self._short_of: list[int] = []

    async def insert(self, rows: Rows) -> Inserted:
        """Stores rows, waiting while the limiter is closed to inserts.

        Raises:
          InvalidArgumentError: the rows contradict their streams; told without waiting.
          UnavailableError: the gate was closed for good during the wait.
        """

        def admits() -> bool:
            return self._admits_insert(rows.row_count)

        closed = not self.inserts.is_free or not admits()
        # Rows that are all there already are acknowledged without waiting.
        if closed and self.table.place(rows).new_count:
            await self.inserts.wait(admits, self.table.limiter.explain_insert)
        inserted = self.table.insert(rows)
        self.samples.notify()
        return inserted

    async def sample(self, batch_size: int, allocate: Allocate = np.empty) -> Sampled:
        """Draws a batch, waiting while the limiter is closed to samples; see `Table.sample`.

        Raises:
          UnavailableError: the gate was closed for good during the wait.
        """

        def admits() -> bool:
            admitted = self.table.limiter.admits_sample(batch_size, self.table.item_count)
            return admitted and self.table.can_draw(batch_size)

        if not self.samples.is_free or not admits():
            self.inserts.notify()
            self._short_of.append(batch_size)
            try:
                await self.samples.wait(admits, lambda: self._explain_sample(batch_size))
            finally:
                self._short_of.remove(batch_size)
        sampled = self.table.sample(batch_size, allocate)
        self.inserts.notify()
        return sampled

    def check_batch_size(self, batch_size: int) -> None:
        """Refuses a batch size that might never be let through.

        Raises:
          FailedPreconditionError: it is too large for the limiter or the table.
        """
        table = self.table
        if batch_size > table.largest_batch:
            raise FailedPreconditionError(
                f"batch_size: got {batch_size}, expected at most {table.largest_batch:g} for "
                f"table {table.name!r} with error_buffer={table.limiter.error_buffer:g} (batches "
                f"up to twice that are let through), sampler={table.config.sampler}, "
                f"max_times_sampled={table.config.max_times_sampled}, "
                f"capacity_rows={table.config.capacity_rows}"
            )

    def notify(self) -> None:
        """Lets those who wait look again, after a change from outside."""
        self.inserts.notify()
        self.samples.notify()

    def close(self) -> None:
        """Ends every wait, now and later, with `UnavailableError`."""
        self.inserts.close()
        self.samples.close()

    def _admits_insert(self, row_count: int) -> bool:
        table = self.table
        if not table.limiter.admits_insert(table.item_count):
            return False
        if not table.config.inserts_wait_for_room or not table.overwrites_items(row_count):
            return True
        # Unread items leave only if a sample needs more than would fit else.
        return any(not table.can_draw(batch_size) for batch_size in self._short_of)

    def _explain_sample(self, batch_size: int) -> str:
        table = self.table
        if table.limiter.admits_sample(batch_size, table.item_count):
            return (
                f"items: a batch of {batch_size} cannot be drawn from {table.item_count} items "
                f"with total priority {table.total_priority:g}"
            )
        return table.limiter.explain_sample(batch_size, table.item_count)


class Line:
    """Those who wait on one side of a gate. Only the first in line looks whether it may go on."""

    def __init__(self, name: str) -> None:
        """Starts empty; `name` says in the log who waits."""
        self._name = name
        self._turn = asyncio.Lock()
        self._changed = asyncio.Event()
        self._closed = False
        self.waiting_count = 0
        self._seconds = 0.0
        self._counted_until = time.monotonic()

    @property
    def is_free(self) -> bool:
        """Whether nobody waits."""
        return self.waiting_count == 0

    @property
    def wait_seconds(self) -> float:
        """Seconds waited so far over all callers, waits that go on included."""
        now = time.monotonic()
        self._seconds += self.waiting_count * (now - self._counted_until)
        self._counted_until = now
        return self._seconds

    async def wait(self, admits: Callable[[], bool], explain: Callable[[], str]) -> None:
        """Waits in line until `admits()`; what follows without an await is still admitted.

        Every 10 s the first in line logs `explain()`.

        Raises:
          UnavailableError: the line was closed.
        """
        self._count(+1)
        try:
            async with self._turn:
                await self._wait_as_first(admits, explain)
        finally:
            self._count(-1)

    def notify(self) -> None:
        """Lets the first in line look again."""
        self._changed.set()

    def close(self) -> None:
        """Ends every wait, now and later, with `UnavailableError`."""
        self._closed = True
        self._changed.set()

    async def _wait_as_first(self, admits: Callable[[], bool], explain: Callable[[], str]) -> None:
        start = time.monotonic()
        next_log = start + LOG_PERIOD_SECONDS
        while not self._closed and not admits():
            self._changed.clear()
            try:
                async with asyncio.timeout(next_log - time.monotonic()):
                    await self._changed.wait()
            except TimeoutError:
                waited = time.monotonic() - start
                logger.info(
                    "%s waits since %.0f s (%d waiting) for %s",
                    self._name,
                    waited,
                    self.waiting_count,
                    explain(),
                )
                next_log += LOG_PERIOD_SECONDS
        if self._closed:
            raise UnavailableError(f"{self._name}: the server is stopping")

    def _count(self, change: int) -> None:
        _ = self.wait_seconds  # brings the seconds up to date
        self.waiting_count += change
