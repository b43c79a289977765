"""Tells the shards of a table of one another, and knows how they are."""

import logging
import threading
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from mycelia.replay.v1 import replay_pb2 as pb
from mycelia_core.clients.failures import translated_errors
from mycelia_core.clients.waiting import Backoff
from mycelia_core.rpc.errors import StatusError

if TYPE_CHECKING:
    from mycelia_core.clients.replay import ReplayClient

logger = logging.getLogger(__name__)

PERIOD_SECONDS = 0.05
"""How often counts are exchanged: what shards do meanwhile, the others' limiters do not see."""

CALL_SECONDS = 1.0


class ShardExchange:
    """Exchanges counts with every shard, each from a daemon thread of its own.

    A shard that has not answered for `timeout_seconds` counts as lost until it
    answers again. Any thread may read.
    """

    def __init__(
        self, clients: Sequence["ReplayClient"], table: str, timeout_seconds: float
    ) -> None:
        """Starts the threads."""
        self.lost_count = 0
        """How often a shard was lost so far."""
        self._clients = clients
        self._table = table
        self._timeout_seconds = timeout_seconds
        self._lock = threading.Lock()
        self._counts = [pb.ExchangeCountsResponse() for _ in clients]
        self._answer_times = [time.monotonic()] * len(clients)
        self._lost = [False] * len(clients)
        self._closing = threading.Event()
        self._threads = [
            threading.Thread(target=self._keep, args=(i,), name=f"exchange {i}", daemon=True)
            for i in range(len(clients))
        ]
        for thread in self._threads:
            thread.start()

    def counts(self) -> list[pb.ExchangeCountsResponse | None]:
        """Returns what each shard told last; None for those that are lost or not filled yet."""
        with self._lock:
            return [
                counts if counts.ready and not lost else None
                for counts, lost in zip(self._counts, self._lost, strict=True)
            ]

    def lost(self) -> list[bool]:
        """Tells which shards are lost."""
        with self._lock:
            return list(self._lost)

    def close(self) -> None:
        """Ends the threads."""
        self._closing.set()
        for thread in self._threads:
            thread.join(CALL_SECONDS)

    def _keep(self, shard: int) -> None:
        backoff = Backoff(PERIOD_SECONDS, 1.0)
        while not self._closing.is_set():
            try:
                self._exchange(shard)
                backoff.reset()
                self._closing.wait(PERIOD_SECONDS)
            except (StatusError, TimeoutError, ValueError) as error:
                self._note_silence(shard, error)
                self._closing.wait(backoff.next_seconds())
                self._clients[shard].find_again()

    def _exchange(self, shard: int) -> None:
        client = self._clients[shard]
        with translated_errors(f"ExchangeCounts at {client.address}"):
            counts = client.stub.ExchangeCounts(self._request(shard), timeout=CALL_SECONDS)
        with self._lock:
            self._counts[shard] = counts
            self._answer_times[shard] = time.monotonic()
            was_lost, self._lost[shard] = self._lost[shard], False
        if was_lost:
            logger.warning("shard %d at %s is back", shard, client.address)

    def _request(self, shard: int) -> pb.ExchangeCountsRequest:
        # A lost shard's counts stay: what it was owed and what it gave is history.
        with self._lock:
            others = [counts for i, counts in enumerate(self._counts) if i != shard]
        return pb.ExchangeCountsRequest(
            run_id=self._clients[shard].run_id,
            table=self._table,
            inserted_item_count=sum(counts.inserted_item_count for counts in others),
            sampled_item_count=sum(counts.sampled_item_count for counts in others),
            min_item_count=sum(counts.min_item_count for counts in others),
        )

    def _note_silence(self, shard: int, error: Exception) -> None:
        with self._lock:
            silence = time.monotonic() - self._answer_times[shard]
            if silence < self._timeout_seconds or self._lost[shard]:
                return
            self._lost[shard] = True
            self.lost_count += 1
        logger.warning(
            "shard %d at %s is lost, going on without it: no answer for %.1f s: %s",
            shard,
            self._clients[shard].address,
            silence,
            error,
        )
