"""Flattening nested values to columns and back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mycelia_core.nested import flatten, unflatten

KEYS = st.text(st.characters(exclude_characters="/", codec="utf-8"), min_size=1, max_size=5)
NESTED = st.recursive(
    st.integers(),
    lambda child: st.dictionaries(KEYS, child, max_size=3) | st.lists(child, max_size=3).map(tuple),
    max_leaves=10,
)


@given(NESTED)
def test_any_nested_value_comes_back(value):
    assert unflatten(flatten(value, "observation"), value, "observation") == value


def test_names_are_joined_in_order():
    value = {"camera": 1, "arms": (2, {"left": 3})}

    assert flatten(value, "observation") == {
        "observation/camera": 1,
        "observation/arms/0": 2,
        "observation/arms/1/left": 3,
    }


@pytest.mark.parametrize("key", ["a/b", "", 3])
def test_keys_that_could_clash_are_refused(key):
    with pytest.raises(ValueError, match="column names need keys"):
        flatten({key: 1}, "observation")
