"""How tensors are split over parameter servers."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from mycelia_core.shard_plan import balance


def made_of(sizes):
    return {f"t{n}": np.zeros(size, np.float32) for n, size in enumerate(sizes)}


@given(st.lists(st.integers(0, 1000), min_size=1, max_size=30), st.integers(1, 5))
def test_every_tensor_is_in_one_group_and_no_group_is_far_over_the_mean(sizes, count):
    tensors = made_of(sizes)

    groups = balance(tensors, count)

    assert sorted(name for group in groups for name in group) == sorted(tensors)
    heaviest = max(sum(array.size for array in group.values()) for group in groups)
    assert heaviest <= sum(sizes) / count + max(sizes)
    assert groups[0]


def test_the_order_of_the_tensors_does_not_matter():
    tensors = made_of([3, 5, 5, 1, 9])

    turned = dict(reversed(tensors.items()))

    assert [set(group) for group in balance(tensors, 2)] == [
        set(group) for group in balance(turned, 2)
    ]


def test_running_statistics_stay_in_the_first_group():
    tensors = made_of([100, 100]) | {
        f"statistics/observation/{part}": np.zeros(10) for part in ("count", "mean", "m2")
    }

    first, second = balance(tensors, 2)

    assert sum(name.startswith("statistics/") for name in first) == 3
    assert set(second) == {"t1"}
