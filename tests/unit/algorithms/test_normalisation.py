"""Moments and their merging."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from mycelia_algorithms.ops.normalisation import Moments, merge_statistics


def test_merging_agrees_with_numbers_worked_out_by_hand():
    moments = Moments.of(np.array([1.0, 2.0, 4.0])).merge(Moments.of(np.array([10.0, -3.0])))

    assert (moments.mean, moments.variance) == (pytest.approx(2.8), pytest.approx(18.16))
    assert moments.count == 5


samples = arrays.arrays(np.float64, st.integers(0, 20), elements=st.floats(-1e3, 1e3))


@given(st.lists(samples, min_size=1, max_size=5))
def test_parts_merged_are_as_good_as_all_at_once(parts):
    merged = Moments.empty(())
    for part in parts:
        merged = merged.merge(Moments.of(part))

    together = Moments.of(np.concatenate(parts))
    assert merged.count == together.count
    np.testing.assert_allclose(merged.mean, together.mean, atol=1e-9)
    np.testing.assert_allclose(merged.m2, together.m2, atol=1e-5)


def test_statistics_travel_as_tensors_and_merge_by_name():
    old = Moments.of(np.arange(6.0).reshape(3, 2)).to_tensors("observation")
    new = Moments.of(np.full((2, 2), 9.0)).to_tensors("observation")

    merged = Moments.from_tensors(merge_statistics(old, new), "observation")

    everything = np.concatenate([np.arange(6.0).reshape(3, 2), np.full((2, 2), 9.0)])
    np.testing.assert_allclose(merged.mean, everything.mean(axis=0))
    np.testing.assert_allclose(merged.variance, everything.var(axis=0))


def test_a_large_offset_does_not_drown_the_spread():
    values = 1e8 + np.array([0.0, 1.0, 2.0, 3.0])

    moments = Moments.of(values[:1])
    for value in values[1:]:
        moments = moments.merge(Moments.of(np.array([value])))

    assert moments.variance == pytest.approx(1.25)


def test_too_few_samples_scale_nothing():
    assert Moments.of(np.array([3.0])).variance == 1.0
    assert Moments.empty((2,)).deviation == pytest.approx([1.0, 1.0])
