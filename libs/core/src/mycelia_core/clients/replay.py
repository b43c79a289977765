"""The client of the replay service."""

import logging
import threading
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Self

import grpc
import numpy as np
from numpy.typing import ArrayLike, NDArray

from mycelia.replay.v1 import replay_pb2 as pb
from mycelia.replay.v1 import replay_pb2_grpc
from mycelia_core.clients.batches import Batch
from mycelia_core.clients.failures import translated_errors
from mycelia_core.clients.priority_updater import PriorityUpdater
from mycelia_core.clients.sampler import Sampler
from mycelia_core.clients.trajectory_writer import BackPressureTimeout, TrajectoryWriter
from mycelia_core.codec import encode
from mycelia_core.config import TableConfig, WindowConfig
from mycelia_core.rpc import insert_wire, sample_wire
from mycelia_core.rpc.channel import open_channel
from mycelia_core.specs import Signature

__all__ = [
    "BackPressureTimeout",
    "Batch",
    "PriorityUpdater",
    "ReplayClient",
    "Sampler",
    "TrajectoryWriter",
]

logger = logging.getLogger(__name__)

CALL_SECONDS = 10.0
"""The deadline of calls that have no parameter for it."""

CHECKPOINT_SECONDS = 600.0
"""How long a checkpoint may take: many gigabytes at a slow disk's speed."""


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

    def __init__(
        self, address: str, run_id: str, *, locate: Callable[[], str | None] | None = None
    ) -> None:
        """Opens a channel; whether anybody answers shows with the first call.

        Args:
          address: the server's.
          run_id: of the run that it serves; empty for one that was started without a run.
          locate: returns where the server is now, or None if that is not known; asked when
            a connection is lost, for a server that was started again elsewhere.
        """
        self.run_id = run_id
        self._locate = locate
        self._left_channels: list[grpc.Channel] = []
        self._go_to(address)

    def _go_to(self, address: str) -> None:
        self.address = address
        self._channel = open_channel(address)
        self.stub = replay_pb2_grpc.ReplayServiceStub(self._channel)
        """The generated stub, for calls that this class does not wrap."""
        self.insert = self._channel.stream_stream(
            insert_wire.METHOD,
            request_serializer=insert_wire.write,
            response_deserializer=pb.InsertResponse.FromString,
        )
        """The stub's `Insert`, but that its requests are not copied as often."""
        self.sample = self._channel.stream_stream(
            sample_wire.METHOD,
            request_serializer=pb.SampleRequest.SerializeToString,
            response_deserializer=sample_wire.read,
        )
        """The stub's `Sample`, but that its responses are not copied as often."""

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

    def delete_items(
        self, table: str, item_keys: NDArray[np.int64], *, timeout: float = CALL_SECONDS
    ) -> tuple[int, int]:
        """Removes items by key, int64 [n]; returns how many, and how many were gone already."""
        request = pb.DeleteItemsRequest(
            run_id=self.run_id, table=table, item_keys=encode(item_keys)
        )
        with translated_errors(f"DeleteItems at {self.address}"):
            response = self.stub.DeleteItems(request, timeout=timeout)
        return response.deleted_count, response.stale_count

    def create_table(
        self, config: TableConfig, signature: Signature, *, timeout: float = CALL_SECONDS
    ) -> bool:
        """Makes a table; returns False if there is the same one already.

        Raises:
          InvalidArgumentError: the settings contradict one another, or somebody
            would wait for ever.
          AlreadyExistsError: there is one of that name that differs.
        """
        settings = config.model_dump(include=set(TableConfig.model_fields) - {"window"})
        window = pb.WindowSettings(**(config.window or WindowConfig()).model_dump())
        request = pb.CreateTableRequest(
            run_id=self.run_id,
            settings=pb.TableSettings(**settings, window=window),
            signature=signature.to_proto(),
        )
        with translated_errors(f"CreateTable at {self.address}"):
            return self.stub.CreateTable(request, timeout=timeout).created

    def reset(self, table: str, *, timeout: float = CALL_SECONDS) -> int:
        """Removes every row and item of a table; returns how many rows."""
        request = pb.ResetRequest(run_id=self.run_id, table=table)
        with translated_errors(f"Reset at {self.address}"):
            return self.stub.Reset(request, timeout=timeout).removed_row_count

    def save_checkpoint(self, *, timeout: float = CHECKPOINT_SECONDS) -> pb.SaveCheckpointResponse:
        """Has the server save all its tables, and returns where and at what cost.

        Raises:
          FailedPreconditionError: it has no folder for checkpoints, or cannot write there.
        """
        request = pb.SaveCheckpointRequest(run_id=self.run_id)
        with translated_errors(f"SaveCheckpoint at {self.address}"):
            return self.stub.SaveCheckpoint(request, timeout=timeout)

    def writer(
        self,
        table: str,
        stream_ids: Sequence[str],
        signature: Signature,
        *,
        window: WindowConfig | None = None,
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
            window=window,
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
        shared_memory: bool = True,
        stop: threading.Event | None = None,
    ) -> Sampler:
        """Opens a sampler, which fetches batches ahead; see `Sampler`."""
        return Sampler(
            self, table, batch_size, prefetch=prefetch, shared_memory=shared_memory, stop=stop
        )

    def updater(self, table: str, *, timeout: float = CALL_SECONDS) -> PriorityUpdater:
        """Opens an updater, which sends priorities in the background; see `PriorityUpdater`."""
        return PriorityUpdater(self, table, timeout=timeout)

    def find_again(self) -> None:
        """Goes to where the server is now, after a lost connection; may take a call's time."""
        address = self._locate() if self._locate else None
        if address is None or address == self.address:
            return
        logger.info("replay has moved from %s to %s", self.address, address)
        self._left_channels.append(self._channel)
        self._go_to(address)

    def close(self) -> None:
        """Closes the channel; writers and samplers must have been closed before."""
        for channel in (*self._left_channels, self._channel):
            channel.close()

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
