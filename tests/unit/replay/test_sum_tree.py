"""The sum-tree against plain numpy."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mycelia_replay import sum_tree
from mycelia_replay.sum_tree import SumTree

LEAVES = np.array([3.0, 1, 4, 1, 5])
MASSES = [0, 2.9999, 3, 3.5, 4, 7.999, 8, 8.5, 9, 13.9999]


def tree_of(values, capacity=None) -> SumTree:
    tree = SumTree(capacity or len(values))
    tree.set(np.arange(len(values)), np.asarray(values, np.float64))
    return tree


@pytest.mark.parametrize("capacity", [5, 7, 1000, 200_000])
def test_finds_the_first_slot_whose_cumulated_sum_is_above_the_mass(capacity):
    tree = tree_of(LEAVES, capacity)

    assert tree.total == 14
    assert tree.find(np.array(MASSES)).tolist() == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]
    assert tree.find(np.array([0.875, 5.25, 9.625, 13.9965])).tolist() == [0, 2, 4, 4]


def test_an_overwritten_value_leaves_the_sum():
    tree = tree_of(LEAVES)

    tree.set(np.array([0]), 0.5)

    assert tree.total == 11.5


def test_the_last_of_several_values_for_one_slot_wins():
    tree = tree_of(LEAVES)

    tree.set(np.array([1, 1, 1]), np.array([7.0, 8.0, 9.0]))

    assert tree[np.array([1])] == 9
    assert tree.total == 22


def test_masses_outside_the_range_are_clamped_to_slots_that_can_be_drawn():
    tree = tree_of([0, 2, 0, 3, 0], capacity=100)

    assert tree.find(np.array([0.0, tree.total, 1e300])).tolist() == [1, 3, 3]


def test_nothing_can_be_found_among_zeros():
    with pytest.raises(ValueError, match="nothing to draw"):
        SumTree(10).find(np.zeros(1))


def test_a_capacity_below_one_is_refused():
    with pytest.raises(ValueError, match="capacity must be at least 1, got 0"):
        SumTree(0)


def test_a_single_item_is_always_drawn():
    tree = SumTree(1000)
    tree.set(np.array([617]), 1e-12)

    assert set(tree.draw(np.random.default_rng(1), 1000).tolist()) == {617}


def test_priorities_over_24_orders_of_magnitude_never_give_a_zero_leaf():
    generator = np.random.default_rng(2)
    values = 10.0 ** generator.uniform(-12, 12, 500)
    values[generator.random(500) < 0.3] = 0
    tree = tree_of(values, capacity=700)

    drawn = tree.draw(generator, 200_000)

    assert drawn.max() < 500
    assert (values[drawn] > 0).all()


def test_only_filled_slots_are_drawn_however_often_they_are_rewritten():
    generator = np.random.default_rng(3)
    tree = SumTree(500)

    for _ in range(50):
        tree.set(np.arange(100), generator.random(100) + 1e-8)
        assert tree.draw(generator, 20_000).max() < 100


def test_the_sum_does_not_drift_over_many_updates():
    generator = np.random.default_rng(4)
    tree, values = SumTree(1024), np.zeros(1024)

    for _ in range(2000):
        slots = generator.integers(0, 1024, 100)
        new = generator.random(100) * 10.0 ** generator.integers(-6, 6)
        tree.set(slots, new)
        values[slots] = new
        assert tree.total == pytest.approx(values.sum(), rel=1e-12)


@pytest.mark.parametrize("top_size", [sum_tree.FAN_OUT, sum_tree.TOP_SIZE])
def test_independent_draws_follow_the_priorities(monkeypatch, top_size):
    """Chi-square with 4 degrees of freedom; 23.5127 is its critical value at 1e-4."""
    monkeypatch.setattr(sum_tree, "TOP_SIZE", top_size)
    tree = tree_of(LEAVES, capacity=3000)

    drawn = tree.draw(np.random.default_rng(5), 100_000)

    observed = np.bincount(drawn, minlength=5)
    expected = LEAVES / LEAVES.sum() * 100_000
    assert ((observed - expected) ** 2 / expected).sum() < 23.5127


def test_the_item_set_last_has_its_share():
    tree = tree_of(np.ones(64))
    drawn = tree.draw(np.random.default_rng(6), 64_000)

    assert abs((drawn == 63).sum() - 1000) < 4 * np.sqrt(1000 * 63 / 64)


values_strategy = st.floats(0, 1e6, allow_subnormal=False)


@settings(max_examples=60, deadline=None)
@given(data=st.data(), capacity=st.integers(1, 3000), top_size=st.sampled_from([32, 64, 4096]))
def test_agrees_with_plain_numpy(data, capacity, top_size):
    kept, sum_tree.TOP_SIZE = sum_tree.TOP_SIZE, top_size
    try:
        tree = SumTree(capacity)
    finally:
        sum_tree.TOP_SIZE = kept
    plain = np.zeros(capacity)
    changes = st.lists(st.tuples(st.integers(0, capacity - 1), values_strategy), max_size=30)
    for _ in range(data.draw(st.integers(1, 4))):
        for_tree = data.draw(changes)
        slots = np.array([slot for slot, _ in for_tree], np.int64)
        values = np.array([value for _, value in for_tree], np.float64)
        tree.set(slots, values)
        for slot, value in for_tree:
            plain[slot] = value
        assert tree.total == pytest.approx(plain.sum(), rel=1e-12)
    if plain.any():
        check_finds(tree, plain, np.array(data.draw(st.lists(st.floats(0, 1), min_size=1))))


def check_finds(tree: SumTree, plain: np.ndarray, fractions: np.ndarray) -> None:
    masses = fractions * tree.total
    found = tree.find(masses)
    cumulated = np.cumsum(plain)
    slack = 1e-9 * cumulated[-1]
    assert (plain[found] > 0).all()
    assert (cumulated[found] >= masses - slack).all()
    assert (cumulated[found] - plain[found] <= masses + slack).all()
