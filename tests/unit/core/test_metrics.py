"""Rates."""

import pytest

from mycelia_core.metrics import Rate


def test_a_rate_is_the_slope_over_the_window():
    rate = Rate(window_seconds=2)

    values = [rate.update(total, now) for now, total in enumerate([0, 10, 20, 120, 220])]

    assert values == [0, 10, 10, pytest.approx(55), pytest.approx(100)]


def test_two_readings_at_once_do_not_divide_by_zero():
    rate = Rate()
    rate.update(1, now=1.0)

    assert rate.update(2, now=1.0) == 0
