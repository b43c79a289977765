"""The sampler: fetches batches of items from a table, ahead of their use."""

import logging
import threading
import time
from collections import deque
from collections.abc import Iterator
from queue import SimpleQueue
from types import TracebackType
from typing import TYPE_CHECKING, Self

import grpc

from mycelia.replay.v1 import replay_pb2 as pb
from mycelia_core.clients.batches import Batch, BatchReader
from mycelia_core.clients.insert_stream import CHECK_SECONDS
from mycelia_core.clients.resuming import final_failure
from mycelia_core.clients.waiting import LOG_PERIOD_SECONDS, Backoff, StoppedError
from mycelia_core.rpc.errors import StatusError

if TYPE_CHECKING:
    from mycelia_core.clients.replay import ReplayClient

__all__ = ["Batch", "Sampler"]

logger = logging.getLogger(__name__)


class Sampler:
    """Iterates over batches, fetched ahead by a daemon thread of its own.

    One thread may use a sampler. A lost connection is made again with back-off;
    batches that were under way are drawn anew. `next` logs every 10 s what the
    table waits for.
    """

    def __init__(
        self,
        client: "ReplayClient",
        table: str,
        batch_size: int,
        *,
        prefetch: int = 2,
        shared_memory: bool = True,
        stop: threading.Event | None = None,
    ) -> None:
        """Starts fetching.

        Args:
          client: whose server and run to sample from.
          table: the table's name.
          batch_size: items per batch.
          prefetch: how many batches are fetched ahead, at least 1.
          shared_memory: whether large batches of a server on this host may come
            through memory shared with it; where that fails they come by gRPC.
          stop: ends waits early when it is set.
        """
        if prefetch < 1:
            raise ValueError(f"prefetch: got {prefetch}, expected at least 1")
        self.wait_seconds = 0.0
        """How long `next` has waited so far."""
        self._client = client
        self._table = table
        self._batch_size = batch_size
        self._prefetch = prefetch
        self._shared_memory = shared_memory
        self._stop = stop or threading.Event()
        self._changed = threading.Condition()
        self._ready: deque[Batch] = deque()
        self._outbox: SimpleQueue[pb.SampleRequest | None] = SimpleQueue()
        self._failure: StatusError | TimeoutError | None = None
        self._closing = False
        self._call: grpc.Call | None = None
        self._thread = threading.Thread(target=self._run, name=f"sample {table}", daemon=True)
        self._thread.start()

    def next(self, timeout: float) -> Batch:
        """Returns the next batch, waiting for it up to `timeout` seconds.

        Raises:
          TimeoutError: it did not come in time.
          StatusError: the server refused, for example a batch size that can
            never be let through.
          StoppedError: the stop event was set, or the sampler closed.
        """
        start = time.monotonic()
        next_log = start + LOG_PERIOD_SECONDS
        while not self._ready:
            now = time.monotonic()
            if now - start >= timeout:
                raise TimeoutError(
                    f"waited {timeout:g} s for a batch from {self._name}: {self._reason()}"
                )
            if now >= next_log:
                logger.info("waiting for a batch since %.0f s: %s", now - start, self._reason())
                next_log += LOG_PERIOD_SECONDS
            self._wait_a_little(start + timeout)
            self.wait_seconds += time.monotonic() - now
        with self._changed:
            batch = self._ready.popleft()
            self._outbox.put(pb.SampleRequest(credit=1))
            self._changed.notify_all()
        return batch

    def __iter__(self) -> Iterator[Batch]:
        """Yields batches until the stop event is set or the sampler closed."""
        while True:
            try:
                yield self.next(float("inf"))
            except StoppedError:
                return

    def close(self) -> None:
        """Stops fetching; batches under way are lost."""
        with self._changed:
            self._closing = True
            self._outbox.put(None)
            if self._call:
                self._call.cancel()
            self._changed.notify_all()
        self._thread.join(timeout=2.0)

    def __enter__(self) -> Self:
        """Returns itself; fetching has begun already."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Closes the sampler."""
        self.close()

    @property
    def _name(self) -> str:
        return f"{self._table!r} at {self._client.address}"

    def _wait_a_little(self, deadline: float) -> None:
        with self._changed:
            if self._ready:
                return
            if self._failure:
                raise self._failure
            if self._stop.is_set() or self._closing:
                raise StoppedError(f"stopped while waiting for a batch from {self._name}")
            self._changed.wait(max(0.0, min(CHECK_SECONDS, deadline - time.monotonic())))

    def _reason(self) -> str:
        """Says what the table waits for, with the numbers, as far as it can be asked."""
        try:
            (info,) = self._client.info([self._table], timeout=2.0)
        except (StatusError, TimeoutError) as error:
            return str(error)
        limiter = info.rate_limiter
        return (
            f"table {info.name!r} has {info.item_count} items "
            f"(min_items_to_sample={limiter.min_item_count}, {info.row_count} rows, "
            f"total priority {info.total_priority:g}), {info.inserted_item_count} inserted, "
            f"{info.sampled_item_count} sampled "
            f"(samples_per_insert={limiter.samples_per_insert:g}, "
            f"error_buffer={limiter.error_buffer:g}, batch_size={self._batch_size})"
        )

    def _run(self) -> None:
        backoff = Backoff()
        while not self._closing:
            try:
                self._converse(backoff)
            except (grpc.RpcError, StatusError, ValueError) as error:
                failure = final_failure(error, f"Sample from {self._name}")
                if failure:
                    self._fail(failure)
                    return
                self._client.find_again()
            time.sleep(backoff.next_seconds())

    def _converse(self, backoff: Backoff) -> None:
        """Makes one call and takes in batches until it ends."""
        with self._changed:
            while len(self._ready) >= self._prefetch and not self._closing:
                self._changed.wait(CHECK_SECONDS)
            if self._closing:
                return
            self._outbox.put(None)  # lets go of the thread that fed the call before
            outbox: SimpleQueue[pb.SampleRequest | None] = SimpleQueue()
            self._outbox = outbox
            outbox.put(self._first_request(self._prefetch - len(self._ready)))
            self._call = call = self._client.sample(iter(outbox.get, None))
        reader = BatchReader(outbox.put)
        for response in call:
            batch = reader.add(response)
            if batch:
                backoff.reset()
                with self._changed:
                    self._ready.append(batch)
                    self._changed.notify_all()

    def _first_request(self, credit: int) -> pb.SampleRequest:
        return pb.SampleRequest(
            run_id=self._client.run_id,
            table=self._table,
            batch_size=self._batch_size,
            credit=credit,
            accepts_shared_memory=self._shared_memory,
        )

    def _fail(self, error: StatusError | TimeoutError) -> None:
        with self._changed:
            self._failure = error
            self._changed.notify_all()
