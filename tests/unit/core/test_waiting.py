"""Back-off, and waits that end by data, by deadline or by a stop."""

import threading
import time

import pytest

from mycelia_core.clients.waiting import Backoff, NotYetError, StoppedError, poll


def never():
    raise NotYetError("still nothing")


def test_delays_double_up_to_the_longest_with_jitter_of_a_half():
    backoff = Backoff(first_seconds=0.1, longest_seconds=0.5)

    delays = [backoff.next_seconds() for _ in range(6)]

    for delay, full in zip(delays, (0.1, 0.2, 0.4, 0.5, 0.5, 0.5), strict=True):
        assert full / 2 <= delay <= full
    backoff.reset()
    assert backoff.next_seconds() <= 0.1


def test_a_wait_returns_what_came_in_the_end():
    answers = iter([NotYetError("a"), NotYetError("b"), 7])

    def attempt():
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    assert poll(attempt, waiting_for="seven", timeout=5) == 7


def test_a_wait_that_is_over_says_for_what_and_why():
    with pytest.raises(TimeoutError, match=r"waited 0.1 s for Godot: still nothing"):
        poll(never, waiting_for="Godot", timeout=0.1)


def test_a_wait_without_time_tries_once():
    assert poll(lambda: 1, waiting_for="one", timeout=0) == 1


def test_a_stop_ends_a_wait_at_once():
    stop = threading.Event()
    threading.Timer(0.1, stop.set).start()
    start = time.monotonic()

    with pytest.raises(StoppedError, match="Godot"):
        poll(never, waiting_for="Godot", timeout=30, stop=stop, longest_delay_seconds=30)

    assert time.monotonic() - start < 1


def test_other_errors_end_a_wait():
    def fail():
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        poll(fail, waiting_for="Godot", timeout=30)
