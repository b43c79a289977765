"""The selectors, each by itself."""

import numpy as np
import pytest

from mycelia_replay.selectors.fifo import Fifo
from mycelia_replay.selectors.prioritized import Prioritized
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
