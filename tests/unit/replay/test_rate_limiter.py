"""The rate limiter's rule, number by number."""

import pytest

from mycelia_replay.rate_limiter import RateLimiter


def make(samples_per_insert=2.0, min_items=10, error_buffer=6.0, max_items=100) -> RateLimiter:
    return RateLimiter(
        samples_per_insert=samples_per_insert,
        min_items_to_sample=min_items,
        error_buffer=error_buffer,
        max_items=max_items,
    )


def test_samples_wait_for_the_minimum_number_of_items():
    limiter = make()
    limiter.count_insert(9)

    assert not limiter.admits_sample(1, item_count=9)
    assert limiter.admits_sample(1, item_count=10)


def test_samples_wait_when_they_would_fall_behind_the_set_point_by_more_than_the_buffer():
    limiter = make()
    limiter.count_insert(10)  # d = 20, the set point

    assert limiter.admits_sample(6, item_count=10)
    assert not limiter.admits_sample(7, item_count=10)
    limiter.count_sample(6)
    assert not limiter.admits_sample(1, item_count=10)


def test_inserts_wait_when_they_are_ahead_of_the_set_point_by_more_than_the_buffer():
    limiter = make()
    limiter.count_insert(13)  # d = 26 = 20 + 6

    assert limiter.admits_insert(item_count=13)
    limiter.count_insert(1)
    assert not limiter.admits_insert(item_count=14)
    limiter.count_sample(2)
    assert limiter.admits_insert(item_count=14)


def test_inserts_never_wait_while_no_sample_could_go_on():
    limiter = make()
    limiter.count_insert(100)

    assert not limiter.admits_insert(item_count=10)
    assert limiter.admits_insert(item_count=9)


def test_without_a_ratio_only_the_minimum_counts():
    limiter = make(samples_per_insert=0, error_buffer=0)
    limiter.count_insert(10)
    limiter.count_sample(10**9)

    assert limiter.admits_sample(10**6, item_count=10)
    assert not limiter.admits_sample(1, item_count=9)
    assert limiter.admits_insert(item_count=100)


def test_the_largest_batch_always_gets_through_when_inserts_wait():
    limiter = make()
    batch_size = int(limiter.largest_batch)
    inserted = 0

    while limiter.admits_insert(item_count=inserted):
        limiter.count_insert(1)
        inserted += 1

    assert limiter.admits_sample(batch_size, item_count=inserted)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"samples_per_insert": float("nan")}, r"samples_per_insert must be in \[0, inf\)"),
        ({"samples_per_insert": -1.0}, "got -1.0"),
        ({"min_items": 0}, r"min_items_to_sample must be in \[1, 100\]"),
        ({"min_items": 101}, "no sample could ever be drawn"),
        ({"error_buffer": 1.9}, r"error_buffer=1.9 is below one insert's worth of samples \(2.0\)"),
        ({"error_buffer": float("nan")}, "error_buffer=nan"),
        ({"samples_per_insert": 0.1, "error_buffer": 0.9}, "would wait for each other"),
    ],
)
def test_impossible_settings_are_refused_with_the_reason(settings, message):
    with pytest.raises(ValueError, match=message):
        make(**settings)


def test_explains_what_a_wait_is_for_with_the_numbers():
    limiter = make()
    limiter.count_insert(20)

    assert limiter.explain_insert() == (
        "samples: d=40 of inserted=20 * samples_per_insert=2 - sampled=0, "
        "inserts wait while d is above 26"
    )
    assert limiter.explain_sample(4, item_count=9) == (
        "items: 9 of min_items_to_sample=10 are there"
    )
    limiter.count_sample(30)
    assert limiter.explain_sample(8, item_count=20) == (
        "inserts: d=10 of inserted=20 * samples_per_insert=2 - sampled=30, "
        "a batch of 8 waits while d is below 22"
    )
