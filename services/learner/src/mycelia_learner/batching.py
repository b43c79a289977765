"""From a sampled batch of arrays to tensors, without a copy."""

from torch.utils.dlpack import from_dlpack

from mycelia_algorithms.update import ReplayBatch
from mycelia_core.clients.sampler import Batch


def to_tensors(batch: Batch) -> ReplayBatch:
    """Wraps the batch's arrays [W, B, ...] as tensors that share their memory.

    The arrays are read-only, and so must be the tensors, although torch cannot see to it.
    """
    return ReplayBatch(
        columns={name: from_dlpack(array) for name, array in batch.columns.items()},
        row_counts=from_dlpack(batch.row_counts),
        probabilities=from_dlpack(batch.probabilities),
        item_count=batch.item_count,
        context_rows=batch.context_rows,
    )
