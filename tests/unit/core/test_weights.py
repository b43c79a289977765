"""Weights on the wire."""

import numpy as np
import pytest

from mycelia_core.parts import split
from mycelia_core.rpc.errors import InvalidArgumentError, ResourceExhaustedError
from mycelia_core.weights import Weights, WeightsReader, make_header

WEIGHTS = Weights(
    version=3,
    learner_step=75,
    tensors={"trunk.0.weight": np.ones((2, 3), np.float32), "trunk.0.bias": np.zeros(2)},
    publish_time=1.5,
)


def parts():
    return list(split(WEIGHTS.tensors.values(), part_bytes=8))


def test_weights_survive_the_wire_in_small_parts():
    reader = WeightsReader(make_header(WEIGHTS))
    for batch in parts():
        reader.add(batch)

    got = reader.finish()

    assert (got.version, got.learner_step, got.publish_time) == (3, 75, 1.5)
    assert list(got.tensors) == list(WEIGHTS.tensors)
    for name, tensor in WEIGHTS.tensors.items():
        np.testing.assert_array_equal(got.tensors[name], tensor)


def test_a_stream_that_ends_early_is_refused():
    reader = WeightsReader(make_header(WEIGHTS))
    for batch in parts()[:-1]:
        reader.add(batch)

    with pytest.raises(InvalidArgumentError, match=r"trunk\.0\.bias: got 8 bytes, expected 16"):
        reader.finish()


def test_a_wrong_byte_is_found_by_the_checksum():
    reader = WeightsReader(make_header(WEIGHTS))
    batches = parts()
    batches[0][0].data = b"\1" + batches[0][0].data[1:]
    for batch in batches:
        reader.add(batch)

    with pytest.raises(InvalidArgumentError, match="checksum"):
        reader.finish()


def test_weights_over_the_limit_are_refused():
    with pytest.raises(ResourceExhaustedError, match="over the limit of 10"):
        WeightsReader(make_header(WEIGHTS), max_bytes=10)
