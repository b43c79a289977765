"""When a batch is closed, what is in it, and what each request gets back of it."""

import queue
import threading
import time

import numpy as np
import pytest

from mycelia_actor.inference.batch import Job
from mycelia_actor.inference.batcher import Batcher
from mycelia_actor.inference.slots import SlotTable
from mycelia_core.rpc.errors import (
    InvalidArgumentError,
    ResourceExhaustedError,
    UnavailableError,
)
from mycelia_core.weights import Weights

LONG = 5.0
"""A deadline that no test waits for."""


class Counting:
    """A network whose output is what it remembers: the sum of what a slot has shown."""

    def __init__(self):
        self.memory = np.zeros(16, np.float32)
        self.version = 0
        self.gate = threading.Event()
        self.gate.set()

    def use(self, weights):
        if weights.version == 13:
            raise ValueError("weights of version 13: unlucky")
        self.version = weights.version

    def see(self, observation, slots):
        assert self.gate.wait(10)
        assert len(set(slots.tolist())) == len(slots)
        kept = np.where(observation["first"], 0, self.memory[slots])
        self.memory[slots] = kept + observation["observation"]
        return {"sum": self.memory[slots], "version": np.full(len(slots), self.version)}

    def look_ahead(self, observation, slots):
        return {"sum": self.memory[slots] + observation["observation"]}


class Asker:
    """Submits requests of one stream."""

    def __init__(self, batcher, lease):
        self.batcher, self.lease = batcher, lease
        self.answers = queue.SimpleQueue()

    def ask(self, *values, first=False, slots=None, looks_ahead=False):
        rows = np.arange(len(values)) if slots is None else np.array(slots)
        observation = {"observation": np.array(values, np.float32)}
        if not looks_ahead:
            observation["first"] = np.full(len(values), first)
        job = Job(self.lease, rows, observation, looks_ahead, self.answers.put)
        self.batcher.submit(job)

    def answer(self):
        return self.answers.get(timeout=10)


class Bench:
    """A batcher, and streams on it."""

    def __init__(self, streams, deadline_seconds=LONG, max_batch=8):
        self.network, self.weights = Counting(), None
        self.batcher = Batcher(
            self.network,
            lambda: self.weights,
            slot_count=16,
            max_batch=max_batch,
            deadline_seconds=deadline_seconds,
        )
        self.slots = SlotTable(16)
        self.askers = [Asker(self.batcher, self.slots.take(4)) for _ in range(streams)]
        self.batcher.set_stream_count(streams)


@pytest.fixture
def bench():
    made = []

    def make(*arguments, **settings):
        made.append(Bench(*arguments, **settings))
        return made[-1]

    yield make
    for each in made:
        each.network.gate.set()
        each.batcher.close()


def test_a_batch_is_closed_at_once_when_every_stream_has_asked(bench):
    one, two = (made := bench(2)).askers
    start = time.monotonic()

    one.ask(1, 2)
    two.ask(3)

    assert one.answer().outputs["sum"].tolist() == [1, 2]
    assert two.answer().batch_row_count == 3
    assert time.monotonic() - start < LONG / 2
    assert (made.batcher.figures.batches, made.batcher.figures.rows) == (1, 3)


def test_a_batch_is_closed_at_the_deadline_when_a_stream_is_silent(bench):
    one, _ = bench(2, deadline_seconds=0.2).askers

    one.ask(1)

    answer = one.answer()
    assert answer.batch_row_count == 1
    assert 0.2 <= answer.wait_seconds < LONG / 2


def test_a_batch_is_closed_at_max_batch_and_the_rest_waits_for_the_next(bench):
    one, two, three, _ = bench(4, deadline_seconds=0.3, max_batch=4).askers

    one.ask(1, 2)
    two.ask(3, 4)
    three.ask(5)

    first, second, third = one.answer(), two.answer(), three.answer()
    assert first.batch_row_count == second.batch_row_count == 4
    assert first.wait_seconds < 0.3 <= third.wait_seconds
    assert third.batch_row_count == 1


def test_a_request_above_max_batch_is_a_batch_of_its_own(bench):
    one, two = bench(2, max_batch=3).askers

    one.ask(1, 2, 3, 4)
    assert one.answer().batch_row_count == 4
    two.ask(1)
    one.ask(1)

    assert two.answer().batch_row_count == 2


def test_what_comes_while_a_batch_is_evaluated_makes_up_the_next(bench):
    one, two, three = (made := bench(3, deadline_seconds=0.0)).askers
    made.network.gate.clear()

    one.ask(1)
    wait_until(lambda: not made.batcher._waiting)
    two.ask(2)
    three.ask(3)
    made.network.gate.set()

    assert one.answer().batch_row_count == 1
    assert two.answer().batch_row_count == three.answer().batch_row_count == 2


def test_requests_with_a_slot_in_common_are_evaluated_one_after_the_other(bench):
    (one,) = (made := bench(1)).askers
    made.network.gate.clear()
    one.ask(0)
    wait_until(lambda: not made.batcher._waiting)

    for value in (1, 10, 100):
        one.ask(value)
    one.ask(7, slots=[1])
    made.network.gate.set()

    answers = [one.answer() for _ in range(5)]
    assert [answer.outputs["sum"][0] for answer in answers] == [0, 1, 11, 111, 7]
    assert answers[4].batch_row_count == 2


def test_looking_ahead_changes_no_memory_and_goes_with_what_does(bench):
    one, two = bench(2).askers
    one.ask(1, 2)
    two.ask(0)
    one.answer(), two.answer()

    one.ask(10, slots=[1], looks_ahead=True)
    two.ask(5)
    assert one.answer().outputs["sum"].tolist() == [12]
    assert two.answer().outputs["sum"].tolist() == [5]
    one.ask(1, slots=[1])
    two.ask(0)

    assert one.answer().outputs["sum"].tolist() == [3]


def test_slots_of_an_ended_stream_are_handed_out_with_nothing_remembered(bench):
    made = bench(1)
    (one,) = made.askers
    one.ask(5, 6, 7, 8)
    one.answer()
    made.slots.give_back(one.lease)
    again = Asker(made.batcher, made.slots.take(4))
    assert sorted(again.lease.slots) == sorted(one.lease.slots)

    again.ask(1, slots=[0], looks_ahead=True)
    ahead = again.answer()
    again.ask(1, 1, 1, 1)

    # One that looks ahead first remembers what it showed then, and no other's past.
    assert ahead.outputs["sum"].tolist() == [2]
    assert again.answer().outputs["sum"].tolist() == [1, 1, 1, 1]


def test_requests_of_a_stream_that_has_ended_are_dropped(bench):
    made = bench(2)
    one, two = made.askers
    one.ask(1)
    made.slots.give_back(one.lease)
    made.batcher.set_stream_count(1)
    two.ask(2)

    assert two.answer().batch_row_count == 1
    assert one.answers.empty()


def test_weights_are_swapped_between_batches_and_each_answer_says_which(bench):
    made = bench(1)
    (one,) = made.askers

    one.ask(0)
    before = one.answer()
    made.weights = Weights(4, 0, {})
    one.ask(0)
    after = one.answer()

    assert (before.policy_version, after.policy_version) == (0, 4)
    assert after.outputs["version"].tolist() == [4]


def test_weights_that_do_not_fit_end_the_batcher_and_everybody_is_told(bench):
    made = bench(1)
    (one,) = made.askers
    made.weights = Weights(13, 0, {})

    one.ask(1)

    assert isinstance(one.answer(), UnavailableError)
    wait_until(lambda: made.batcher.failure is not None)
    assert "unlucky" in str(made.batcher.failure)
    wait_until(lambda: made.batcher._closing)
    with pytest.raises(UnavailableError, match="stopping"):
        one.ask(2)


def test_closing_sends_away_who_waits(bench):
    made = bench(2)
    made.askers[0].ask(1)

    made.batcher.close()

    assert isinstance(made.askers[0].answer(), UnavailableError)


@pytest.mark.parametrize(
    ("count", "error"),
    [(0, InvalidArgumentError), (17, ResourceExhaustedError), (13, UnavailableError)],
)
def test_slots_that_cannot_be_had_are_refused_by_number(count, error):
    slots = SlotTable(16)
    lease = slots.take(4)

    with pytest.raises(error, match=f"slot_count: got {count}"):
        slots.take(count)

    slots.give_back(lease)
    assert slots.used_count == slots.lease_count == 0


def wait_until(condition):
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.005)
