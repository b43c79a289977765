"""Sampling weights, against worked numbers."""

import pytest
import torch

from mycelia_algorithms.ops.sampling import normalise_by_batch_max, sampling_weight

PRIORITY = (torch.tensor([0.5, 0.1, 2, 0, 1], dtype=torch.float64) + 1e-6) ** 0.6
PROBABILITY = PRIORITY / PRIORITY.sum()
WEIGHT = [
    1.0153604811523613,
    1.4940743964358456,
    0.7279910073645398,
    23.67954022996039,
    0.8597519341140519,
]


def test_weights_match_the_worked_numbers():
    weight = sampling_weight(PROBABILITY, 5, 0.4)

    assert weight.tolist() == pytest.approx(WEIGHT, rel=1e-12)


def test_weights_are_normalised_by_the_batchs_maximum():
    weight = normalise_by_batch_max(sampling_weight(PROBABILITY[[2, 4, 0]], 5, 0.4))

    assert weight.tolist() == pytest.approx([0.716977882119582, 0.8467455155811217, 1], rel=1e-12)


def test_uniform_sampling_needs_no_correction():
    weight = sampling_weight(torch.full((4,), 1 / 7, dtype=torch.float64), 7, 0.4)

    assert weight.tolist() == pytest.approx([1] * 4, rel=1e-12)


def test_a_matrix_of_probabilities_is_refused():
    with pytest.raises(ValueError, match="probability"):
        sampling_weight(torch.ones(4, 1), 4, 0.4)
