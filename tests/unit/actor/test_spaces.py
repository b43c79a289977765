"""Spaces become columns and come back exactly."""

import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector.utils import batch_space, concatenate, create_empty_array

from mycelia_actor.environments.spaces import (
    SpaceColumns,
    UnsupportedSpaceError,
    action_columns,
    observation_columns,
    signature_of,
)
from mycelia_core.specs import check_rows

SPACES = {
    "uint8 image": spaces.Box(0, 255, (4, 4, 3), np.uint8),
    "float32 vector": spaces.Box(-np.inf, np.inf, (5,), np.float32),
    "float64 vector": spaces.Box(-1, 1, (2,), np.float64),
    "shape ()": spaces.Box(-1, 1, (), np.float32),
    "shape (1,)": spaces.Box(-1, 1, (1,), np.float32),
    "bool": spaces.Box(0, 1, (3,), np.bool_),
    "discrete": spaces.Discrete(4),
    "discrete with start": spaces.Discrete(4, start=-2),
    "multi-discrete": spaces.MultiDiscrete([3, 2]),
    "multi-binary": spaces.MultiBinary(5),
    "multi-binary grid": spaces.MultiBinary((2, 3)),
    "tuple": spaces.Tuple([spaces.Discrete(3, start=1), spaces.Box(0, 1, (2,), np.float32)]),
    "dict": spaces.Dict(
        {
            "image": spaces.Box(0, 255, (2, 2), np.uint8),
            "vector": spaces.Box(-1, 1, (3,), np.float32),
            "choice": spaces.Discrete(7),
        }
    ),
    "nested": spaces.Dict(
        {
            "arms": spaces.Tuple([spaces.Discrete(2), spaces.Dict({"x": spaces.Discrete(3)})]),
            "base": spaces.Dict({"pose": spaces.Box(-1, 1, (3,), np.float64)}),
        }
    ),
}


def assert_same(got, expected):
    if isinstance(expected, dict):
        assert got.keys() == expected.keys()
        for key, value in expected.items():
            assert_same(got[key], value)
    elif isinstance(expected, tuple):
        assert len(got) == len(expected)
        for one, other in zip(got, expected, strict=True):
            assert_same(one, other)
    else:
        assert np.asarray(got).dtype == np.asarray(expected).dtype
        np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("space", SPACES.values(), ids=SPACES.keys())
def test_values_come_back_with_dtype_shape_and_value(space):
    space.seed(3)
    columns = SpaceColumns(space, "action")
    values = [space.sample() for _ in range(6)]

    decoded = columns.decode(columns.encode(values))

    for got, expected in zip(decoded, values, strict=True):
        assert_same(got, expected)
        assert space.contains(got)


@pytest.mark.parametrize("space", SPACES.values(), ids=SPACES.keys())
def test_batches_of_vector_environments_become_the_same_columns(space):
    space.seed(3)
    columns = SpaceColumns(space, "observation")
    values = [space.sample() for _ in range(6)]
    batch = concatenate(space, values, create_empty_array(space, 6))

    from_batch, one_by_one = columns.encode_batch(batch), columns.encode(values)

    assert from_batch.keys() == one_by_one.keys()
    for name, column in one_by_one.items():
        assert from_batch[name].dtype == column.dtype
        np.testing.assert_array_equal(from_batch[name], column)
    assert batch_space(space, 6).contains(columns.decode_batch(from_batch))


@pytest.mark.parametrize("space", SPACES.values(), ids=SPACES.keys())
def test_rows_of_any_space_fit_their_signature(space):
    observation, action = observation_columns(space), action_columns(spaces.Discrete(2))
    signature = signature_of(observation, action)
    rows = {
        **observation.encode([space.sample() for _ in range(3)]),
        **action.zeros(3),
        "reward": np.zeros(3, np.float32),
        "policy_version": np.zeros(3, np.int64),
        **{flag: np.zeros(3, np.bool_) for flag in ("first", "terminated", "truncated")},
    }

    assert check_rows(signature, rows) == 3


def test_a_discrete_column_counts_from_zero_and_says_how_far():
    columns = SpaceColumns(spaces.Discrete(4, start=10), "action")

    (spec,) = columns.specs

    assert (spec.name, spec.dtype, spec.shape, spec.category_count) == ("action", np.int64, (), 4)
    assert columns.encode([np.int64(12)])["action"].tolist() == [2]
    assert columns.decode({"action": np.array([3])}) == [13]


def test_nested_columns_are_named_by_their_path():
    columns = SpaceColumns(SPACES["nested"], "observation")

    assert [spec.name for spec in columns.specs] == [
        "observation/arms/0",
        "observation/arms/1/x",
        "observation/base/pose",
    ]


def test_a_batch_is_copied():
    columns = SpaceColumns(spaces.Box(-1, 1, (2,), np.float32), "observation")
    batch = np.zeros((3, 2), np.float32)

    encoded = columns.encode_batch(batch)
    batch[:] = 1

    assert not encoded["observation"].any()


@pytest.mark.parametrize(
    "space",
    [spaces.Text(5), spaces.Dict({"words": spaces.Sequence(spaces.Discrete(2))})],
)
def test_a_space_without_fixed_shape_is_refused_by_name(space):
    with pytest.raises(UnsupportedSpaceError, match=r"column 'observation.*has no fixed dtype"):
        observation_columns(space)


def test_a_key_with_a_slash_is_refused():
    with pytest.raises(UnsupportedSpaceError, match="'a/b'"):
        observation_columns(spaces.Dict({"a/b": spaces.Discrete(2)}))
