"""The client of a replay table that lies on several servers."""

import logging
import threading
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mycelia.replay.v1 import replay_pb2 as pb
from mycelia_core.clients.priority_updater import PriorityUpdater
from mycelia_core.clients.replay import CALL_SECONDS, ReplayClient
from mycelia_core.clients.shard_keys import MAX_SHARDS, shards_of, to_local
from mycelia_core.clients.sharded_sampler import ShardedSampler
from mycelia_core.clients.sharded_writer import ShardedWriter
from mycelia_core.config import WindowConfig
from mycelia_core.rpc.errors import StatusError, UnavailableError
from mycelia_core.specs import Signature

logger = logging.getLogger(__name__)

REST_SECONDS = 1.0
"""How long a shard that did not answer is not asked again."""

_SUMMED = (
    "capacity_rows",
    "row_count",
    "item_count",
    "reserved_bytes",
    "used_bytes",
    "inserted_row_count",
    "inserted_item_count",
    "sampled_item_count",
    "updated_priority_count",
    "stale_update_count",
    "duplicate_row_count",
    "missing_row_count",
    "refused_request_count",
    "total_priority",
)


class ShardedReplayClient:
    """Talks to all shards of a run's tables as `ReplayClient` does to one server.

    Any thread may use it. It owns the clients that it is given.
    """

    def __init__(
        self, clients: Sequence[ReplayClient], *, shard_timeout_seconds: float = 10.0
    ) -> None:
        """Takes the shards' clients, in order.

        Raises:
          ValueError: there are none or too many.
        """
        if not 1 <= len(clients) <= MAX_SHARDS:
            raise ValueError(f"shards: got {len(clients)}, expected 1 to {MAX_SHARDS}")
        self.run_id = clients[0].run_id
        self.lost_update_count = 0
        """Priorities that could not be sent because their shard was away."""
        self._clients = clients
        self._shard_timeout_seconds = shard_timeout_seconds
        self._ask_again_times = [0.0] * len(clients)

    @property
    def address(self) -> str:
        """The addresses, for people."""
        return ", ".join(client.address for client in self._clients)

    def info(
        self, tables: Sequence[str] = (), *, timeout: float = CALL_SECONDS
    ) -> list[pb.TableInfo]:
        """Describes tables, summed over the shards that answer.

        Raises:
          StatusError, TimeoutError: none does.
        """
        answers: list[list[pb.TableInfo]] = []
        failure: Exception | None = None
        for client in self._clients:
            try:
                answers.append(client.info(tables, timeout=timeout))
            except (StatusError, TimeoutError) as error:
                failure = error
        if not answers:
            raise failure or UnavailableError("no shard answers")
        return [_summed(infos) for infos in zip(*answers, strict=True)]

    def update_priorities(
        self,
        table: str,
        item_keys: NDArray[np.int64],
        priorities: ArrayLike,
        *,
        timeout: float = CALL_SECONDS,
    ) -> tuple[int, int]:
        """Sets the priorities of items, each on its own shard; see `ReplayClient`.

        What a shard that is away does not get is counted as stale.
        """
        values = np.asarray(priorities, np.float64)
        shards = shards_of(item_keys)
        applied = stale = 0
        for shard in np.unique(shards).tolist():
            mine = np.flatnonzero(shards == shard)
            keys = to_local(item_keys[mine])
            done = self._update_shard(shard, table, keys, values[mine], timeout)
            applied, stale = applied + done[0], stale + done[1]
        return applied, stale

    def reset(self, table: str, *, timeout: float = CALL_SECONDS) -> int:
        """Removes every row and item of a table on all shards; returns how many rows."""
        return sum(client.reset(table, timeout=timeout) for client in self._clients)

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
    ) -> ShardedWriter:
        """Opens a writer for new streams; see `ShardedWriter`."""
        return ShardedWriter(
            self._clients,
            table,
            stream_ids,
            signature,
            window=window,
            chunk_rows=chunk_rows,
            max_in_flight=max_in_flight,
            timeout_seconds=timeout_seconds,
            shard_timeout_seconds=self._shard_timeout_seconds,
            stop=stop,
        )

    def sampler(
        self,
        table: str,
        batch_size: int,
        *,
        prefetch: int = 2,
        seed: int = 0,
        stop: threading.Event | None = None,
    ) -> ShardedSampler:
        """Opens a sampler, which fetches batches ahead; see `ShardedSampler`."""
        return ShardedSampler(
            self._clients,
            table,
            batch_size,
            prefetch=prefetch,
            shard_timeout_seconds=self._shard_timeout_seconds,
            seed=seed,
            stop=stop,
        )

    def updater(self, table: str, *, timeout: float = CALL_SECONDS) -> PriorityUpdater:
        """Opens an updater, which sends priorities in the background; see `PriorityUpdater`."""
        return PriorityUpdater(self, table, timeout=timeout)

    def close(self) -> None:
        """Closes the channels; writers and samplers must have been closed before."""
        for client in self._clients:
            client.close()

    def __enter__(self) -> Self:
        """Returns itself; the channels are open already."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Closes the channels."""
        self.close()

    def _update_shard(
        self,
        shard: int,
        table: str,
        item_keys: NDArray[np.int64],
        priorities: NDArray[np.float64],
        timeout: float,
    ) -> tuple[int, int]:
        if time.monotonic() >= self._ask_again_times[shard]:
            try:
                return self._clients[shard].update_priorities(
                    table, item_keys, priorities, timeout=timeout
                )
            except (UnavailableError, TimeoutError) as error:
                self._ask_again_times[shard] = time.monotonic() + REST_SECONDS
                logger.info("priorities of shard %d are lost: %s", shard, error)
        self.lost_update_count += len(item_keys)
        return 0, len(item_keys)


AnyReplayClient = ReplayClient | ShardedReplayClient
"""Talks to a run's tables, however many servers they are on."""


def _summed(infos: Sequence[pb.TableInfo]) -> pb.TableInfo:
    """Adds up what shards say of one table; the rest is the first one's."""
    total = pb.TableInfo()
    total.CopyFrom(infos[0])
    for name in _SUMMED:
        setattr(total, name, sum(getattr(info, name) for info in infos))
    limiter = total.rate_limiter
    for name in ("min_item_count", "waiting_insert_count", "waiting_sample_count"):
        setattr(limiter, name, sum(getattr(info.rate_limiter, name) for info in infos))
    for name in ("insert_wait_seconds", "sample_wait_seconds"):
        setattr(limiter, name, sum(getattr(info.rate_limiter, name) for info in infos))
    return total
