"""What is remembered of streams, and for how long."""

import numpy as np
import pytest

from mycelia_core.rpc.errors import InvalidArgumentError
from mycelia_replay.rows import Segment
from mycelia_replay.streams import Streams


class Storing:
    """Streams, and the key of the next row."""

    def __init__(self, **settings: int) -> None:
        self.streams = Streams(history_rows=3, **settings)
        self.next_key = 0

    def store(self, *segments: Segment):
        """Stores rows of which only a stream's row 0 begins an episode."""
        begins = np.array([s.start_row + i == 0 for s in segments for i in range(s.row_count)])
        count = len(begins)
        arrival = self.streams.place(segments, begins, np.zeros(count, np.bool_))
        self.streams.commit(arrival, self.next_key)
        self.next_key += arrival.new_count
        return arrival


def test_the_longest_idle_stream_is_forgotten_to_make_room():
    storing = Storing(max_streams=3)
    for name in "abc":
        storing.store(Segment(name, 0, 2))
    storing.store(Segment("a", 2, 1))

    storing.store(Segment("d", 0, 2))

    assert len(storing.streams) == 3
    assert storing.store(Segment("a", 2, 1)).duplicate_count == 1
    assert storing.store(Segment("c", 1, 1)).duplicate_count == 1
    assert storing.store(Segment("b", 0, 2)).duplicate_count == 0


def test_the_streams_of_one_request_never_push_one_another_out():
    storing = Storing(max_streams=2)
    storing.store(Segment("a", 0, 2), Segment("b", 0, 2))

    storing.store(Segment("a", 2, 1), Segment("c", 0, 1))

    for name, next_row in (("a", 3), ("c", 1)):
        arrival = storing.store(Segment(name, next_row, 1))
        assert (arrival.duplicate_count, arrival.missing_count) == (0, 0)


def test_more_streams_at_once_than_are_remembered_are_refused():
    storing = Storing(max_streams=2)

    with pytest.raises(InvalidArgumentError, match="segments: got 3, expected at most 2"):
        storing.store(*(Segment(name, 0, 1) for name in "abc"))


def test_gaps_and_duplicates_are_counted_over_all_segments():
    storing = Storing()
    storing.store(Segment("a", 0, 4), Segment("b", 0, 4))

    arrival = storing.streams.place(
        [Segment("a", 2, 4), Segment("b", 7, 2), Segment("c", 5, 1)],
        np.array([False] * 4 + [True, False, True]),
        np.zeros(7, np.bool_),
    )

    assert (arrival.new_count, arrival.duplicate_count, arrival.missing_count) == (5, 2, 3 + 5)
    assert arrival.positions.tolist() == [4, 5, 0, 1, 0]
    assert arrival.cut.tolist() == [1]
