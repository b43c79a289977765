"""The max-tree against plain numpy."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from mycelia_replay.max_tree import MaxTree


@given(
    rounds=st.lists(
        st.lists(st.tuples(st.integers(0, 199), st.floats(0, 1e9)), max_size=20), max_size=6
    )
)
def test_knows_the_largest_value_however_values_rise_and_fall(rounds):
    tree, plain = MaxTree(200), np.zeros(200)

    for changes in rounds:
        tree.set(np.array([s for s, _ in changes], np.int64), np.array([v for _, v in changes]))
        for slot, value in changes:
            plain[slot] = value
        assert tree.largest == plain.max()
