"""Cutting tensors into messages and putting them together again."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mycelia.experience.v1 import tensor_pb2
from mycelia_core.parts import Assembler, split, tensor_spec
from mycelia_core.rpc.errors import InvalidArgumentError, ResourceExhaustedError


def specs_of(arrays):
    return [tensor_spec(f"t{index}", array) for index, array in enumerate(arrays)]


@given(
    st.lists(st.integers(0, 50), max_size=6),
    st.integers(1, 40),
)
def test_any_cut_gives_the_same_tensors_back(lengths, part_bytes):
    rng = np.random.default_rng(0)
    arrays = [rng.integers(0, 255, length).astype(np.uint8) for length in lengths]
    assembler = Assembler(specs_of(arrays), max_bytes=10_000)

    for parts in split(arrays, part_bytes):
        assert sum(len(part.data) for part in parts) <= part_bytes
        assembler.add(parts)

    for got, expected in zip(assembler.finish().values(), arrays, strict=True):
        np.testing.assert_array_equal(got, expected)


def test_nothing_to_send_is_one_empty_message():
    assert list(split([])) == [[]]


def test_a_tensor_in_one_part_is_not_copied():
    array = np.arange(10.0)
    (parts,) = split([array])
    assembler = Assembler(specs_of([array]), max_bytes=1000)

    assembler.add(parts)

    assert not assembler.finish()["t0"].flags.writeable


def part(index=0, offset=0, data=b"1234"):
    return tensor_pb2.TensorPart(tensor_index=index, offset_bytes=offset, data=data)


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ([part(index=1)], "tensor_index 1"),
        ([part(index=-1)], "tensor_index -1"),
        ([part(offset=4)], "expected them to begin at 0"),
        ([part(), part()], "expected them to begin at 4"),
        ([part(data=b"123456789")], "to end by 8"),
        ([part()], "t0: got 4 bytes, expected 8"),
        ([], "t0: got 0 bytes, expected 8"),
    ],
)
def test_parts_that_do_not_make_up_the_tensor_are_refused(parts, message):
    assembler = Assembler(specs_of([np.zeros(1)]), max_bytes=1000)

    with pytest.raises(InvalidArgumentError, match=message):
        assembler.add(parts)
        assembler.finish()


def test_more_than_the_limit_is_refused_before_anything_is_allocated():
    spec = tensor_pb2.TensorSpec(name="t", dtype=tensor_pb2.D_TYPE_FLOAT64, shape=[2**40])

    with pytest.raises(ResourceExhaustedError, match="over the limit of 1000"):
        Assembler([spec], max_bytes=1000)


def test_a_name_that_comes_twice_is_refused():
    spec = tensor_spec("t", np.zeros(1))

    with pytest.raises(InvalidArgumentError, match="twice"):
        Assembler([spec, spec], max_bytes=1000)
