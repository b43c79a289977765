"""Writes rows to the shards of a table: each stream to one of them."""

import logging
import threading
import time
import zlib
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from mycelia_core.clients.insert_stream import BackPressureTimeout
from mycelia_core.clients.trajectory_writer import TrajectoryWriter
from mycelia_core.config import WindowConfig
from mycelia_core.specs import Signature

if TYPE_CHECKING:
    from mycelia_core.clients.replay import ReplayClient

logger = logging.getLogger(__name__)

SLICE_SECONDS = 0.1
"""How soon a wait notices that a shard is lost."""


class ShardedWriter:
    """A `TrajectoryWriter` over several servers. One thread may use it.

    Streams are dealt out evenly, beginning with a shard that follows from the
    first one's name. While a shard is lost, rows of its streams are dropped and
    counted; they leave a gap, as if they had been lost on the way.
    """

    def __init__(
        self,
        clients: Sequence["ReplayClient"],
        table: str,
        stream_ids: Sequence[str],
        signature: Signature,
        *,
        window: WindowConfig | None = None,
        chunk_rows: int = 16,
        max_in_flight: int = 4,
        timeout_seconds: float = 60.0,
        shard_timeout_seconds: float = 10.0,
        stop: threading.Event | None = None,
    ) -> None:
        """Opens a writer to each shard that gets a stream. See `TrajectoryWriter`.

        Args:
          clients: of the shards, in order.
          table: the table's name on all of them.
          stream_ids: the ids of the streams, each new in this run.
          signature: the table's columns.
          window: the table's; as for `TrajectoryWriter`.
          chunk_rows: everything is sent to a shard once a stream has so many rows.
          max_in_flight: how many requests to each shard may be unacknowledged.
          timeout_seconds: how long `append` waits at most for one of them.
          shard_timeout_seconds: after how much silence a shard counts as lost.
          stop: ends waits early when it is set.
        """
        self.dropped_row_count = 0
        """Rows that were dropped because their shard was lost."""
        self._timeout_seconds = timeout_seconds
        self._shard_timeout_seconds = shard_timeout_seconds
        first = zlib.crc32(stream_ids[0].encode()) if stream_ids else 0
        self._shard_of = (first + np.arange(len(stream_ids))) % len(clients)
        self._local = np.zeros(len(stream_ids), np.int64)
        self._every_stream = np.arange(len(stream_ids))
        self._writers: dict[int, TrajectoryWriter] = {}
        for shard in np.unique(self._shard_of).tolist():
            mine = np.flatnonzero(self._shard_of == shard)
            self._local[mine] = np.arange(len(mine))
            self._writers[shard] = clients[shard].writer(
                table,
                [stream_ids[i] for i in mine.tolist()],
                signature,
                window=window,
                chunk_rows=chunk_rows,
                max_in_flight=max_in_flight,
                timeout_seconds=timeout_seconds,
                stop=stop,
            )

    @property
    def wait_seconds(self) -> float:
        """How long the writer has waited for acknowledgements so far."""
        return sum(writer.wait_seconds for writer in self._writers.values())

    @property
    def stored_row_count(self) -> int:
        """How many rows the servers have acknowledged as stored."""
        return sum(writer.stored_row_count for writer in self._writers.values())

    def append(
        self,
        columns: Mapping[str, NDArray[Any]],
        *,
        streams: NDArray[np.int64] | None = None,
        priorities: NDArray[np.float64] | None = None,
        item_columns: Mapping[str, NDArray[Any]] | None = None,
    ) -> None:
        """Records one row for each of some streams; as `TrajectoryWriter.append`."""
        streams = self._every_stream if streams is None else streams
        shards = self._shard_of[streams]
        concerned = np.unique(shards).tolist()
        # All of them first: a row that is recorded cannot be taken back.
        for shard in concerned:
            self._make_room(shard)
        for shard in concerned:
            mine = np.flatnonzero(shards == shard)
            self._writers[shard].append(
                {name: values[mine] for name, values in columns.items()},
                streams=self._local[streams[mine]],
                priorities=None if priorities is None else priorities[mine],
                item_columns={k: values[mine] for k, values in (item_columns or {}).items()},
            )

    def drop(self, stream: int) -> None:
        """Forgets a stream's running episode; as `TrajectoryWriter.drop`."""
        self._writers[int(self._shard_of[stream])].drop(int(self._local[stream]))

    def flush(self, timeout: float | None = None) -> None:
        """Sends what is recorded; as `TrajectoryWriter.flush`, but passes over lost shards."""
        deadline = time.monotonic() + (self._timeout_seconds if timeout is None else timeout)
        for shard, writer in self._writers.items():
            if not self._is_lost(shard):
                writer.flush(deadline - time.monotonic())

    def close(self, timeout: float | None = None) -> None:
        """Flushes and ends the streams; raises like `flush`, but ends them in any case."""
        failures: list[Exception] = []
        for shard, writer in self._writers.items():
            try:
                writer.close(0.0 if self._is_lost(shard) else timeout)
            except BackPressureTimeout as error:
                failures.append(error)
        if failures and not any(map(self._is_lost, self._writers)):
            raise failures[0]

    def __enter__(self) -> Self:
        """Returns itself; the streams are open already."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Closes the writer; after an error without waiting for acknowledgements."""
        for writer in self._writers.values():
            if error:
                writer.__exit__(kind, error, trace)
        if not error:
            self.close()

    def _is_lost(self, shard: int) -> bool:
        return self._writers[shard].lost_seconds > self._shard_timeout_seconds

    def _make_room(self, shard: int) -> None:
        deadline = time.monotonic() + self._timeout_seconds
        while True:
            lost = self._is_lost(shard)
            left = deadline - time.monotonic()
            try:
                # In slices: the shard may be found to be lost during the wait.
                self._writers[shard].make_room(0.0 if lost else min(left, SLICE_SECONDS))
            except BackPressureTimeout:
                if lost:
                    self._discard(shard)
                elif left <= SLICE_SECONDS:
                    raise
            else:
                return

    def _discard(self, shard: int) -> None:
        if not self.dropped_row_count:
            logger.warning("shard %d is lost: the rows of its streams are dropped", shard)
        self.dropped_row_count += self._writers[shard].discard()


AnyWriter = TrajectoryWriter | ShardedWriter
"""Writes rows, to however many servers."""
