"""Batches of a replay table as a torch dataset, for training loops of one's own."""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor
from torch.utils.data import IterableDataset, get_worker_info

from mycelia_core.clients.batches import Batch
from mycelia_core.clients.replay import ReplayClient


class ReplayDataset(IterableDataset[dict[str, Tensor]]):
    """Yields batches without end; give it to a `DataLoader` with `batch_size=None`.

    Each is a dict of the columns [W, B, ...], and `item_keys`, `probabilities`,
    `row_counts` and `times_sampled` [B], `item_count` []. Each worker of the loader
    has a connection of its own, and draws independently.
    """

    def __init__(
        self,
        address: str,
        table: str,
        batch_size: int,
        *,
        run_id: str = "",
        prefetch: int = 2,
        transform: Callable[[dict[str, Tensor]], dict[str, Tensor]] | None = None,
    ) -> None:
        """Connects to nothing yet.

        Args:
          address: the replay server's.
          table: the table's name.
          batch_size: items per batch.
          run_id: of the run that it serves; empty for a server without a run.
          prefetch: how many batches are fetched ahead.
          transform: applied to each batch, in the worker.
        """
        super().__init__()
        self._address = address
        self._table = table
        self._batch_size = batch_size
        self._run_id = run_id
        self._prefetch = prefetch
        self._transform = transform

    def __iter__(self) -> Iterator[dict[str, Tensor]]:
        """Yields batches until the server refuses or the iterator is dropped."""
        # Tensors in shared memory of the server cannot go on to another process.
        alone = get_worker_info() is None
        with (
            ReplayClient(self._address, self._run_id) as client,
            client.sampler(
                self._table, self._batch_size, prefetch=self._prefetch, shared_memory=alone
            ) as sampler,
        ):
            for batch in sampler:
                tensors = as_tensors(batch)
                yield self._transform(tensors) if self._transform else tensors


def as_tensors(batch: Batch) -> dict[str, Tensor]:
    """Copies a batch's arrays into tensors."""
    arrays = batch.columns | {
        "item_keys": batch.item_keys,
        "probabilities": batch.probabilities,
        "row_counts": batch.row_counts,
        "times_sampled": batch.times_sampled,
    }
    tensors = {name: torch.tensor(array) for name, array in arrays.items()}
    return tensors | {"item_count": torch.tensor(batch.item_count)}
