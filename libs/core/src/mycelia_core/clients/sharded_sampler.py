"""Samples from the shards of a table as if it were one.

An item of shard s is drawn with probability

    P(i) = T_s / sum T * p_i / T_s = p_i / sum T

T_s being the shard's total priority: how many items of a batch come from each
shard is drawn first (multinomial), and then that many are taken from what the
shard has drawn in proportion to its own priorities. `Batch` carries the sums
over all shards, so importance weights need not know of shards.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Self

import numpy as np
from numpy.typing import NDArray

from mycelia_core.clients.batches import Batch
from mycelia_core.clients.sampler import Sampler
from mycelia_core.clients.shard_exchange import ShardExchange
from mycelia_core.clients.shard_keys import to_sharded
from mycelia_core.clients.waiting import LOG_PERIOD_SECONDS, StoppedError

if TYPE_CHECKING:
    from mycelia_core.clients.replay import ReplayClient

logger = logging.getLogger(__name__)

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

PIECES_PER_BATCH = 4
"""Shards are asked for batches of this fraction: less is wasted, and more calls are made."""

CHECK_SECONDS = 0.02
"""How long one look at a shard's batches may wait."""


class ShardedSampler:
    """Iterates over batches from several servers. One thread may use it.

    A shard that is lost is left out, with a warning, until it is back. Draws
    from shards that wait for their rate limiter wait, too: only so all of them
    keep their shares.
    """

    def __init__(
        self,
        clients: Sequence["ReplayClient"],
        table: str,
        batch_size: int,
        *,
        prefetch: int = 2,
        shard_timeout_seconds: float = 10.0,
        seed: int = 0,
        stop: threading.Event | None = None,
    ) -> None:
        """Starts fetching.

        Args:
          clients: of the shards, in order.
          table: the table's name on all of them.
          batch_size: items per batch.
          prefetch: how many batches each shard fetches ahead, at least 1.
          shard_timeout_seconds: after how much silence a shard counts as lost.
          seed: of the draws among the shards.
          stop: ends waits early when it is set.
        """
        piece_size = max(1, batch_size // PIECES_PER_BATCH)
        pieces = -(-batch_size // piece_size)
        self.wait_seconds = 0.0
        """How long `next` has waited so far."""
        self._table = table
        self._batch_size = batch_size
        self._stop = stop or threading.Event()
        self._generator = np.random.default_rng(seed)
        self._exchange = ShardExchange(clients, table, shard_timeout_seconds)
        self._pools = [
            _Pool(Sampler(client, table, piece_size, prefetch=pieces * prefetch, stop=stop))
            for client in clients
        ]

    @property
    def lost_shard_count(self) -> int:
        """How many shards are lost now."""
        return sum(self._exchange.lost())

    def next(self, timeout: float) -> Batch:
        """Returns the next batch, waiting for it up to `timeout` seconds.

        Raises:
          TimeoutError: it did not come in time.
          StatusError: a server refused, for example a batch size that can
            never be let through.
          StoppedError: the stop event was set, or the sampler closed.
        """
        start = time.monotonic()
        next_log = start + LOG_PERIOD_SECONDS
        pieces: list[tuple[int, Batch]] = []
        unassigned = self._batch_size
        wanted = np.zeros(len(self._pools), np.int64)
        while unassigned or wanted.any():
            now = time.monotonic()
            if now - start >= timeout:
                raise TimeoutError(f"waited {timeout:g} s for a batch: {self._reason()}")
            if now >= next_log:
                logger.info("waiting for a batch since %.0f s: %s", now - start, self._reason())
                next_log += LOG_PERIOD_SECONDS
            unassigned += self._give_up_lost(wanted)
            if unassigned:
                shares = self._shares()
                if shares is None:
                    self._wait(CHECK_SECONDS)
                    continue
                wanted += self._generator.multinomial(unassigned, shares)
                unassigned = 0
            pieces += self._take(wanted)
            self.wait_seconds += time.monotonic() - now
        return self._join(pieces)

    def __iter__(self) -> Iterator[Batch]:
        """Yields batches until the stop event is set or the sampler closed."""
        while True:
            try:
                yield self.next(float("inf"))
            except StoppedError:
                return

    def close(self) -> None:
        """Stops fetching; batches under way are lost."""
        self._exchange.close()
        for pool in self._pools:
            pool.sampler.close()

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

    def _totals(self) -> Floats:
        counts = self._exchange.counts()
        return np.array([count.total_priority if count else 0.0 for count in counts])

    def _shares(self) -> Floats | None:
        totals = self._totals()
        return totals / totals.sum() if totals.any() else None

    def _give_up_lost(self, wanted: Ints) -> int:
        """Takes back what is wanted of shards that are lost; returns how many items."""
        lost = np.array(self._exchange.lost())
        for shard in np.flatnonzero(lost).tolist():
            # What it had drawn is of no use once it is back with other priorities.
            self._pools[shard].clear()
        count = int(wanted[lost].sum())
        wanted[lost] = 0
        return count

    def _take(self, wanted: Ints) -> list[tuple[int, Batch]]:
        """Takes a piece of each shard of which items are wanted, waiting a little for each."""
        taken: list[tuple[int, Batch]] = []
        for shard in np.flatnonzero(wanted).tolist():
            piece = self._pools[shard].take(int(wanted[shard]))
            if piece is not None:
                taken.append((shard, piece))
                wanted[shard] -= len(piece.item_keys)
        return taken

    def _join(self, pieces: Sequence[tuple[int, Batch]]) -> Batch:
        counts = self._exchange.counts()
        totals = self._totals()
        # A shard may have gone since its items were taken: the others' shares tell what was.
        for shard, piece in pieces:
            totals[shard] = totals[shard] or piece.total_priority
        total = float(totals.sum())
        return Batch(
            item_keys=np.concatenate([to_sharded(p.item_keys, s) for s, p in pieces]),
            probabilities=np.concatenate([p.probabilities * totals[s] / total for s, p in pieces]),
            row_counts=np.concatenate([p.row_counts for _, p in pieces]),
            times_sampled=np.concatenate([p.times_sampled for _, p in pieces]),
            item_count=sum(count.item_count for count in counts if count) or 1,
            total_priority=total,
            context_rows=pieces[0][1].context_rows,
            columns={
                name: np.concatenate([p.columns[name] for _, p in pieces], axis=1)
                for name in pieces[0][1].columns
            },
            burn_in_rows=pieces[0][1].burn_in_rows,
            burn_in_counts=np.concatenate([p.burn_in_counts for _, p in pieces]),
            item_columns={
                name: np.concatenate([p.item_columns[name] for _, p in pieces])
                for name in pieces[0][1].item_columns
            },
        )

    def _wait(self, seconds: float) -> None:
        if self._stop.wait(seconds):
            raise StoppedError(f"stopped while waiting for a batch of {self._table!r}")
        self.wait_seconds += seconds

    def _reason(self) -> str:
        counts = self._exchange.counts()
        described = [f"{c.item_count} items" if c else "lost or not filled" for c in counts]
        return f"shards of table {self._table!r}: {', '.join(described)}"


AnySampler = Sampler | ShardedSampler
"""Iterates over batches, from however many servers."""


class _Pool:
    """Items that a shard has drawn and that no batch has taken yet."""

    def __init__(self, sampler: Sampler) -> None:
        self.sampler = sampler
        self._pieces: deque[Batch] = deque()

    def take(self, count: int) -> Batch | None:
        """Returns up to `count` items, waiting a little; None if there are none."""
        if not self._pieces:
            try:
                self._pieces.append(self.sampler.next(CHECK_SECONDS))
            except TimeoutError:
                return None
        piece = self._pieces.popleft()
        if len(piece.item_keys) > count:
            self._pieces.appendleft(_items(piece, slice(count, None)))
            piece = _items(piece, slice(0, count))
        return piece

    def clear(self) -> None:
        self._pieces.clear()


def _items(batch: Batch, which: slice) -> Batch:
    return replace(
        batch,
        item_keys=batch.item_keys[which],
        probabilities=batch.probabilities[which],
        row_counts=batch.row_counts[which],
        times_sampled=batch.times_sampled[which],
        columns={name: values[:, which] for name, values in batch.columns.items()},
        burn_in_counts=batch.burn_in_counts[which],
        item_columns={name: values[which] for name, values in batch.item_columns.items()},
    )
