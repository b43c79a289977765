"""Work in a thread of its own."""

import threading

from mycelia_learner.background import LatestWins


def test_what_comes_while_work_is_under_way_replaces_what_waits():
    busy, release, done = threading.Event(), threading.Event(), []

    def work(item):
        done.append(item)
        busy.set()
        release.wait(5)

    background = LatestWins("test", work)
    background.put(1)
    busy.wait(5)
    for item in (2, 3, 4):
        background.put(item)
    release.set()

    assert background.close(5)
    assert done == [1, 4]


def test_an_error_is_logged_and_the_next_thing_is_taken(caplog):
    failed, done = threading.Event(), []

    def work(item):
        if item == 1:
            failed.set()
            raise OSError("disk full")
        done.append(item)

    background = LatestWins("test", work)
    background.put(1)
    failed.wait(5)
    background.put(2)

    assert background.close(5)
    assert done == [2]
    assert "test failed: disk full" in caplog.text


def test_closing_says_if_the_work_did_not_end_in_time():
    release, busy = threading.Event(), threading.Event()

    def work(_):
        busy.set()
        release.wait(5)

    background = LatestWins("test", work)
    background.put(1)
    busy.wait(5)

    assert not background.close(0.01)
    release.set()
