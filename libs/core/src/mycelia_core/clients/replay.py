"""The client of the replay service."""

import threading
from collections.abc import Sequence
from types import TracebackType
from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mycelia.replay.v1 import replay_pb2 as pb
from mycelia.replay.v1 import replay_pb2_grpc
from mycelia_core.clients.batches import Batch
from mycelia_core.clients.failures import translated_errors
from mycelia_core.clients.sampler import Sampler
from mycelia_core.clients.trajectory_writer import BackPressureTimeout, TrajectoryWriter
from mycelia_core.codec import encode
from mycelia_core.rpc.channel import open_channel
from mycelia_core.specs import Signature

__all__ = ["BackPressureTimeout", "Batch", "ReplayClient", "Sampler", "TrajectoryWriter"]

CALL_SECONDS = 10.0
"""The deadline of calls that have no parameter for it."""


class ReplayClient:
    """Talks to the tables of one run. Any thread may use it.

        with ReplayClient("127.0.0.1:7701", run_id) as client:
            writer = client.writer("train", ["my-actor/0"], signature)
            writer.append({"observation": ..., "action": ..., "reward": ..., ...})
            sampler = client.sampler("train", batch_size=256)
            batch = sampler.next(timeout=60)
            client.update_priorities("train", batch.item_keys, priorities)

    Errors: each method raises the `StatusError` that the server meant
    (`UnavailableError` if it cannot be reached), and `TimeoutError` when a
    deadline passes.
    """

    def __init__(self, address: str, run_id: str) -> None:
        """Opens a channel; whether anybody answers shows with the first call."""
        self.address = address
        self.run_id = run_id
        self._channel = open_channel(address)
        self.stub = replay_pb2_grpc.ReplayServiceStub(self._channel)
        """The generated stub, for calls that this class does not wrap."""

    def info(
        self, tables: Sequence[str] = (), *, timeout: float = CALL_SECONDS
    ) -> list[pb.TableInfo]:
        """Describes tables, all if none is named: settings, fill, counters and who waits."""
        request = pb.GetInfoRequest(run_id=self.run_id, tables=tables)
        with translated_errors(f"GetInfo at {self.address}"):
            return list(self.stub.GetInfo(request, timeout=timeout).tables)

    def update_priorities(
        self,
        table: str,
        item_keys: NDArray[np.int64],
        priorities: ArrayLike,
        *,
        timeout: float = CALL_SECONDS,
    ) -> tuple[int, int]:
        """Sets the priorities of items.

        Args:
          table: the table's name.
          item_keys: int64 [n], as `Batch` has them. If a key comes twice, the last value wins.
          priorities: [n], finite and at least 0; before the table's exponent.
          timeout: seconds.

        Returns:
          how many were applied, and how many were of items that are gone.
        """
        request = pb.UpdatePrioritiesRequest(
            run_id=self.run_id,
            table=table,
            item_keys=encode(item_keys),
            priorities=encode(np.asarray(priorities, np.float64)),
        )
        with translated_errors(f"UpdatePriorities at {self.address}"):
            response = self.stub.UpdatePriorities(request, timeout=timeout)
        return response.applied_count, response.stale_count

    def reset(self, table: str, *, timeout: float = CALL_SECONDS) -> int:
        """Removes every row and item of a table; returns how many rows."""
        request = pb.ResetRequest(run_id=self.run_id, table=table)
        with translated_errors(f"Reset at {self.address}"):
            return self.stub.Reset(request, timeout=timeout).removed_row_count

    def writer(
        self,
        table: str,
        stream_ids: Sequence[str],
        signature: Signature,
        *,
        chunk_rows: int = 16,
        max_in_flight: int = 4,
        timeout_seconds: float = 60.0,
        stop: threading.Event | None = None,
    ) -> TrajectoryWriter:
        """Opens a writer for new streams; see `TrajectoryWriter`."""
        return TrajectoryWriter(
            self,
            table,
            stream_ids,
            signature,
            chunk_rows=chunk_rows,
            max_in_flight=max_in_flight,
            timeout_seconds=timeout_seconds,
            stop=stop,
        )

    def sampler(
        self,
        table: str,
        batch_size: int,
        *,
        prefetch: int = 2,
        stop: threading.Event | None = None,
    ) -> Sampler:
        """Opens a sampler, which fetches batches ahead; see `Sampler`."""
        return Sampler(self, table, batch_size, prefetch=prefetch, stop=stop)

    def close(self) -> None:
        """Closes the channel; writers and samplers must have been closed before."""
        self._channel.close()

    def __enter__(self) -> Self:
        """Returns itself; the channel is open already."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Closes the channel."""
        self.close()
