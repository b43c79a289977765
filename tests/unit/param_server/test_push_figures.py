"""What is counted of pushes and rounds, and what a checkpoint keeps of it."""

import json

import pytest

from mycelia_param_server.push_figures import STALENESS_BOUNDS, Buckets, PushFigures


@pytest.mark.parametrize(("staleness", "bucket"), [(0, 0), (1, 1), (3, 3), (4, 3), (5, 4)])
def test_staleness_falls_into_the_bucket_that_bounds_it(staleness, bucket):
    figures = PushFigures()

    figures.observe_staleness(staleness)

    assert figures.staleness.counts.index(1) == bucket
    assert STALENESS_BOUNDS[bucket] >= staleness


def test_staleness_beyond_all_bounds_is_counted_last():
    figures = PushFigures()

    figures.observe_staleness(10**9)

    assert figures.staleness.counts[-1] == 1
    assert figures.staleness.max == 10**9


def test_sum_and_maximum_are_those_of_the_values():
    buckets = Buckets((1, 2))

    for value in (0.5, 2.0, 7.0, 3.0):
        buckets.add(value)

    assert (buckets.counts, buckets.sum, buckets.max) == ([1, 1, 2], 12.5, 7.0)


def test_figures_go_on_from_a_checkpoint():
    figures = PushFigures()
    figures.count("applied")
    figures.observe_staleness(3)
    figures.observe_round(0.25, absent=2)
    figures.scaled = 5

    restored = PushFigures.restored(json.loads(json.dumps(figures.state())))

    assert restored.state() == figures.state()
    restored.observe_round(0.5, absent=1)
    assert (restored.rounds.sum, restored.stragglers) == (0.75, 3)


def test_a_histogram_of_other_ranges_is_not_taken_over():
    state = PushFigures().state()
    state["staleness"]["counts"].pop()

    with pytest.raises(ValueError, match="of 12 ranges, expected 13"):
        PushFigures.restored(state)
