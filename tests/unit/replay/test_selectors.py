"""The selectors, each by itself."""

import numpy as np
import pytest

from mycelia_replay.selectors.fifo import Fifo
from mycelia_replay.selectors.heap import Heap
from mycelia_replay.selectors.lifo import Lifo
from mycelia_replay.selectors.prioritized import Prioritized
from mycelia_replay.selectors.rank_based import RankBased
from mycelia_replay.selectors.uniform import Uniform

UNKNOWN = np.nan


@pytest.fixture
def generator() -> np.random.Generator:
    return np.random.default_rng(1)


def test_prioritized_applies_the_exponent_once(generator):
    errors = np.array([0.5, 0.1, 2, 0, 1])
    selector = Prioritized(5, exponent=0.6)
    selector.add(np.arange(5), errors + 1e-6)

    slots, probabilities = selector.draw(generator, 1000)

    expected = [
        0.19252155246781003,
        0.07329923416197703,
        0.44229798317463115,
        7.32987943700904e-05,
        0.29180793140121175,
    ]
    assert selector.total == pytest.approx(3.426913707239033, rel=1e-12)
    assert probabilities == pytest.approx(np.array(expected)[slots], rel=1e-12)


def test_prioritized_gives_unknown_priorities_the_largest_raw_one(generator):
    selector = Prioritized(10, exponent=0.5)
    assert selector.default_priority == 1

    selector.add(np.array([0, 1]), np.array([4.0, 1.0]))
    selector.add(np.array([2]), np.array([UNKNOWN]))

    assert selector.default_priority == 4
    assert selector.total == 2 + 1 + 2
    selector.remove(np.array([0, 2]))
    assert selector.default_priority == 1


def test_prioritized_never_draws_priority_zero_whatever_the_exponent(generator):
    for exponent in (0.0, 0.6, 1.0):
        selector = Prioritized(4, exponent)
        selector.add(np.arange(4), np.array([0.0, 5.0, 0.0, 1e-9]))

        slots, _ = selector.draw(generator, 1000)

        assert set(slots.tolist()) <= {1, 3}
        assert selector.drawable(np.arange(4)).tolist() == [False, True, False, True]


def test_prioritized_cannot_draw_when_every_priority_is_zero():
    selector = Prioritized(4, 1.0)
    selector.add(np.arange(4), np.zeros(4))

    assert not selector.can_draw(1)
    assert selector.default_priority == 1


def test_prioritized_survives_the_largest_and_smallest_numbers(generator):
    selector = Prioritized(3, exponent=2.0)
    selector.add(np.arange(3), np.array([1.7e308, 1.7e308, 5e-324]))

    slots, probabilities = selector.draw(generator, 100)

    assert np.isfinite(probabilities).all()
    assert set(slots.tolist()) == {0, 1}


def test_uniform_draws_all_items_alike(generator):
    selector = Uniform(10)
    selector.add(np.arange(8), np.full(8, UNKNOWN))
    selector.remove(np.array([0, 1, 2]))
    selector.update(np.array([3]), np.array([1e6]))

    slots, probabilities = selector.draw(generator, 50_000)

    observed = np.bincount(slots, minlength=8)
    assert observed[:3].sum() == 0
    assert ((observed[3:] - 10_000) ** 2 / 10_000).sum() < 23.5127
    assert (probabilities == 0.2).all()


def test_fifo_draws_the_oldest_first_and_keeps_them(generator):
    selector = Fifo(10)
    selector.add(np.array([5, 3, 9]), np.full(3, UNKNOWN))
    selector.add(np.array([1]), np.full(1, UNKNOWN))

    for _ in range(2):
        assert selector.draw(generator, 3)[0].tolist() == [5, 3, 9]
    assert selector.can_draw(4)
    assert not selector.can_draw(5)


def test_fifo_skips_what_has_left_and_puts_a_reused_slot_last(generator):
    selector = Fifo(4)
    selector.add(np.array([0, 1, 2]), np.full(3, UNKNOWN))
    selector.remove(np.array([0, 1]))
    selector.add(np.array([0]), np.full(1, UNKNOWN))

    assert selector.draw(generator, 2)[0].tolist() == [2, 0]
    assert selector.total == 2


def test_fifo_keeps_its_order_over_many_rounds(generator):
    selector, expected = Fifo(7), []

    for step in range(500):
        slots = [slot for slot in generator.permutation(7).tolist() if slot not in expected]
        slots = slots[: 1 + step % 4]
        selector.add(np.array(slots, np.int64), np.full(len(slots), UNKNOWN))
        expected += slots
        assert selector.draw(generator, len(expected))[0].tolist() == expected
        leaving = generator.choice(expected, len(expected) // 2, replace=False)
        selector.remove(leaving)
        expected = [slot for slot in expected if slot not in leaving]


def test_lifo_draws_the_newest_first_and_keeps_them(generator):
    selector = Lifo(10)
    selector.add(np.array([5, 3, 9]), np.full(3, UNKNOWN))
    selector.add(np.array([1]), np.full(1, UNKNOWN))

    for _ in range(2):
        assert selector.draw(generator, 3)[0].tolist() == [1, 9, 3]
    selector.remove(np.array([1, 3]))
    assert selector.draw(generator, 2)[0].tolist() == [9, 5]
    assert not selector.can_draw(3)


def test_lifo_keeps_its_order_over_many_rounds(generator):
    selector, expected = Lifo(7), []

    for step in range(500):
        slots = [slot for slot in generator.permutation(7).tolist() if slot not in expected]
        slots = slots[: 1 + step % 4]
        selector.add(np.array(slots, np.int64), np.full(len(slots), UNKNOWN))
        expected += slots
        assert selector.draw(generator, len(expected))[0].tolist() == expected[::-1]
        leaving = generator.choice(expected, len(expected) // 2, replace=False)
        selector.remove(leaving)
        expected = [slot for slot in expected if slot not in leaving]


@pytest.mark.parametrize("highest_first", [True, False])
def test_a_heap_draws_in_the_order_of_priorities_over_many_rounds(generator, highest_first):
    selector, sign = Heap(20, highest_first=highest_first), -1 if highest_first else 1
    expected: dict[int, tuple[float, int]] = {}

    for step in range(500):
        slots = [slot for slot in generator.permutation(20).tolist() if slot not in expected][:5]
        priorities = generator.integers(0, 6, len(slots)).astype(float)
        selector.add(np.array(slots, np.int64), priorities)
        for place, slot in enumerate(slots):
            expected[slot] = (sign * priorities[place], 100 * step + place)
        changed = generator.choice(list(expected), 4)
        values = generator.integers(0, 6, 4).astype(float)
        selector.update(changed, values)
        for slot, value in zip(changed.tolist(), values.tolist(), strict=True):
            expected[slot] = (sign * value, expected[slot][1])
        in_order = sorted(expected, key=expected.__getitem__)
        assert selector.draw(generator, len(expected))[0].tolist() == in_order
        leaving = generator.choice(list(expected), len(expected) // 2, replace=False)
        selector.remove(leaving)
        expected = {slot: key for slot, key in expected.items() if slot not in leaving}
        assert len(selector._entries) <= 64 + 4 * 20


def test_rank_based_draws_by_rank_whatever_the_size_of_priorities(generator):
    selector = RankBased(10, exponent=0.7)
    selector.add(np.arange(6), np.array([1.0, 1e9, 0.0, 3.0, 1e-9, 2.0]))
    selector.update(np.array([0, 3]), np.array([5.0, 0.5]))
    selector.remove(np.array([5]))
    order = [1, 0, 3, 4]

    slots, probabilities = selector.draw(generator, 100_000)

    shares = np.arange(1, 5) ** -0.7
    shares /= shares.sum()
    observed = np.bincount(slots, minlength=10)
    assert observed.sum() == observed[order].sum()
    expected = 100_000 * shares
    assert ((observed[order] - expected) ** 2 / expected).sum() < 16.27  # p > 0.001
    for slot, share in zip(order, shares, strict=True):
        assert probabilities[slots == slot] == pytest.approx(share)
    assert selector.default_priority == 1e9


def test_rank_based_keeps_exact_ranks_over_many_changes(generator):
    selector, priorities = RankBased(50, exponent=1.0), np.zeros(50)

    for _ in range(300):
        slots = generator.choice(50, 8, replace=False)
        values = np.where(generator.random(8) < 0.2, 0.0, generator.random(8))
        selector.update(slots, values)
        priorities[slots] = values
        if generator.random() < 0.3 and selector.can_draw(1):
            selector.draw(generator, 1)
            ranked = np.argsort(-priorities)[: np.count_nonzero(priorities)]
            assert selector._order.tolist() == ranked.tolist()


@pytest.mark.parametrize(
    "make",
    [
        lambda: Lifo(30),
        lambda: Heap(30, highest_first=True),
        lambda: Heap(30, highest_first=False),
        lambda: RankBased(30, 0.7),
    ],
)
def test_a_selector_goes_on_from_its_state_as_if_nothing_had_happened(generator, make):
    one, two = make(), make()
    one.add(np.arange(20), generator.integers(1, 4, 20).astype(float))
    one.update(np.arange(5), np.full(5, 2.0))
    one.remove(np.array([3, 19]))

    two.load_state(one.state())

    for selector in (one, two):
        selector.add(np.array([3, 25]), np.array([2.0, UNKNOWN]))
    drawn = [s.draw(np.random.default_rng(7), 12)[0].tolist() for s in (one, two)]
    assert drawn[0] == drawn[1]
    assert one.total == two.total
