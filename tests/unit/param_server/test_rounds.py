"""Who a round waits for, and what it makes of their gradients."""

import numpy as np
import pytest

from mycelia_param_server.gradient_intake import Push
from mycelia_param_server.rounds import Round, Rounds


def push(values, samples=1, worker="a", **metrics):
    return Push(
        worker_id=worker,
        sequence=1,
        version=1,
        sample_count=samples,
        gradient=np.asarray(values, np.float32),
        statistics={},
        metrics=metrics,
    )


def rounds(workers, drop=0, gone=()):
    return Rounds(workers, drop, lambda worker: worker in gone)


def test_it_waits_for_workers_that_have_never_come():
    waiting = rounds(3)
    for worker in ("a", "b"):
        waiting.enter(worker)

    assert not waiting.is_full({"a", "b"})
    waiting.enter("c")
    assert waiting.is_full({"a", "b", "c"})


def test_it_does_without_as_many_as_may_be_dropped():
    waiting = rounds(4, drop=1)
    for worker in ("a", "b", "c"):
        waiting.enter(worker)

    assert waiting.is_full({"a", "b", "c"})
    assert not waiting.is_full({"a", "b"})


def test_even_if_all_may_be_dropped_one_has_to_come():
    assert not rounds(1, drop=5).is_full(set())
    assert rounds(1, drop=5).is_full({"a"})


def test_who_is_gone_is_not_waited_for():
    gone = set()
    waiting = Rounds(2, 0, gone.__contains__)
    waiting.enter("a")
    waiting.enter("b")
    assert not waiting.is_full({"a"})

    gone.add("b")

    assert waiting.is_full({"a"})
    assert waiting.worker_count == 1


def test_more_workers_than_planned_all_take_part():
    waiting = rounds(1)
    for worker in ("a", "b", "c"):
        waiting.enter(worker)

    assert waiting.worker_count == 3


def test_who_missed_the_deadline_is_waited_for_again_once_it_is_back():
    waiting = rounds(3)
    for worker in ("a", "b"):
        waiting.enter(worker)

    assert waiting.drop_absent({"a"}) == 2
    assert waiting.worker_count == 1
    waiting.enter("b")
    assert waiting.worker_count == 2


async def test_the_mean_is_weighted_by_samples():
    full = Round(1, 2)
    full.add(push([1, 0], samples=1, kl=1.0))
    full.add(push([4, 3], samples=3, kl=2.0, other=7.0))

    np.testing.assert_allclose(full.mean(), [13 / 4, 9 / 4])
    assert full.mean_metrics() == {"kl": pytest.approx(7 / 4), "other": pytest.approx(7.0)}


async def test_the_mean_of_many_is_exact_to_float32_where_float32_sums_are_not():
    full = Round(1, 1)
    for index in range(3000):
        full.add(push([1e6 if index % 2 else -1e6 + 0.5], samples=17))

    assert full.mean()[0] == pytest.approx(0.25, abs=1e-6)
