"""From arrays to tensors."""

import numpy as np
import torch

from mycelia_core.clients.sampler import Batch
from mycelia_learner.batching import to_tensors


def read_only(array):
    array.flags.writeable = False
    return array


def make_batch():
    return Batch(
        item_keys=read_only(np.arange(2)),
        probabilities=read_only(np.array([0.25, 0.75])),
        row_counts=read_only(np.array([2, 3], np.int32)),
        times_sampled=read_only(np.array([1, 1], np.int32)),
        item_count=9,
        total_priority=1.0,
        context_rows=0,
        columns={
            "observation": read_only(np.ones((3, 2, 4), np.float32)),
            "terminated": read_only(np.zeros((3, 2), np.bool_)),
        },
    )


def test_read_only_arrays_become_tensors_that_share_their_memory():
    batch = make_batch()

    tensors = to_tensors(batch)

    observation = batch.columns["observation"]
    assert tensors.columns["observation"].data_ptr() == observation.ctypes.data
    assert tensors.columns["terminated"].dtype == torch.bool
    assert tensors.row_counts.tolist() == [2, 3]
    assert tensors.probabilities.dtype == torch.float64
    assert tensors.item_count == 9
