"""The writer: sends rows of experience to a table, many streams together."""

import threading
import time
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from mycelia_core.clients.insert_stream import BackPressureTimeout, InsertStream
from mycelia_core.clients.row_buffer import RowBuffer
from mycelia_core.config import WindowConfig
from mycelia_core.specs import Signature

if TYPE_CHECKING:
    from mycelia_core.clients.replay import ReplayClient

__all__ = ["BackPressureTimeout", "TrajectoryWriter"]


class TrajectoryWriter:
    """Records rows of several streams and sends them in the background.

    A row is what its policy saw and did: `observation`, `action`, the `reward`
    that the action earned, `first`, and what the policy adds. An episode's last
    row holds the final observation with `terminated` or `truncated`; its action
    and reward mean nothing. So the end of an episode is one more `append`, and
    the row after it is `first`:

        row          0      1      2      3          4
        observation  s0     s1     s2     s3 (final) s0'
        action       a0     a1     a2     -          a0'
        reward       r0     r1     r2     -          r0'
        first        x                               x
        terminated                        x

    Rows are numbered from 0 in each stream, so a stream's id must never be used
    twice in a run, not even by an actor that is started again.

    One thread may use a writer. A lost connection is made again with back-off,
    and rows that were not acknowledged are sent again; the server drops those
    that it has.
    """

    def __init__(
        self,
        client: "ReplayClient",
        table: str,
        stream_ids: Sequence[str],
        signature: Signature,
        *,
        window: WindowConfig | None = None,
        chunk_rows: int = 16,
        max_in_flight: int = 4,
        timeout_seconds: float = 60.0,
        stop: threading.Event | None = None,
    ) -> None:
        """Opens a writer. Does not wait for the server.

        Args:
          client: whose server and run to write to.
          table: the table's name.
          stream_ids: the ids of the streams, each new in this run.
          signature: the table's columns.
          window: the table's, with item columns: they are sent of the rows where an
            item starts; None to send every row's, of which the server drops some.
          chunk_rows: everything is sent once a stream has so many rows.
          max_in_flight: how many requests may be unacknowledged.
          timeout_seconds: how long `append` waits at most for one of them.
          stop: ends waits early when it is set.

        Raises:
          InvalidArgumentError: an argument makes no sense.
        """
        self._run_id = client.run_id
        self._table = table
        self._timeout_seconds = timeout_seconds
        self._buffer = RowBuffer(signature, stream_ids, chunk_rows, window)
        name = f"{table!r} at {client.address}"
        self._stream = InsertStream(client, name, max_in_flight, stop)

    @property
    def wait_seconds(self) -> float:
        """How long the writer has waited for acknowledgements so far."""
        return self._stream.wait_seconds

    @property
    def stored_row_count(self) -> int:
        """How many rows the server has acknowledged as stored."""
        return self._stream.stored_row_count

    def append(
        self,
        columns: Mapping[str, NDArray[Any]],
        *,
        streams: NDArray[np.int64] | None = None,
        priorities: NDArray[np.float64] | None = None,
        item_columns: Mapping[str, NDArray[Any]] | None = None,
    ) -> None:
        """Records one row for each of some streams; waits only for back-pressure.

        Everything is copied, so the caller may reuse its arrays at once. If the
        call raises, nothing of it was recorded.

        Args:
          columns: each [n, ...], exactly the columns of the signature.
          streams: [n] indices into `stream_ids`, each once; None for all, in order.
          priorities: [n] of the items that begin at these rows, finite and at
            least 0. NaN, or None for all, where it is not known: these get the
            largest that was sent with them, or the table's largest.
          item_columns: each [n, ...], exactly the item columns of the signature, such as
            the recurrent state before each row; copied only where an item starts.

        Raises:
          BackPressureTimeout: the server took no rows for `timeout_seconds`.
            Rows recorded before are kept, and the call may be repeated.
          InvalidArgumentError: a column does not fit the signature, or the
            server refused rows.
          StatusError: the server refused rows for another reason.
          StoppedError: the stop event was set during the wait.
        """
        self.make_room(self._timeout_seconds)
        self._buffer.append(columns, streams, priorities, item_columns)
        if self._buffer.is_full and self._stream.has_room:
            self._send()

    def make_room(self, timeout: float) -> None:
        """Waits until the next `append` will not have to; raises like it."""
        if not self._buffer.has_room:
            self._stream.wait_for_room(timeout)
            self._send()

    @property
    def lost_seconds(self) -> float:
        """For how long the server has not been there; 0 while it is."""
        return self._stream.lost_seconds

    def discard(self) -> int:
        """Forgets what is recorded and not sent yet; returns how many rows.

        Their numbers stay theirs, so that the server sees a gap.
        """
        return self._buffer.discard()

    def drop(self, stream: int) -> None:
        """Forgets what is recorded of a stream's running episode and not sent yet.

        The next row of the stream must be the first of an episode. What was sent
        stays in the table; the episode ends there with its last row, as before a gap.
        """
        self._buffer.drop(stream)

    def flush(self, timeout: float | None = None) -> None:
        """Sends what is recorded and waits until the server has acknowledged it.

        Raises:
          BackPressureTimeout: not within `timeout` seconds (`timeout_seconds` if None).
          StatusError: the server refused rows.
          StoppedError: the stop event was set during the wait.
        """
        deadline = time.monotonic() + (self._timeout_seconds if timeout is None else timeout)
        if len(self._buffer):
            self._stream.wait_for_room(deadline - time.monotonic())
            self._send()
        self._stream.wait_until_acknowledged(deadline - time.monotonic())

    def close(self, timeout: float | None = None) -> None:
        """Flushes and ends the stream; raises like `flush`, but ends it in any case."""
        try:
            self.flush(timeout)
        finally:
            self._stream.close()

    def __enter__(self) -> Self:
        """Returns itself; the stream is open already."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Closes the writer; after an error without waiting for acknowledgements."""
        if error:
            self._stream.close()
        else:
            self.close()

    def _send(self) -> None:
        self._stream.submit(self._buffer.take(self._run_id, self._table))
