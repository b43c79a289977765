"""The tensor codec: every dtype, byte order, layout, and what it refuses."""

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from mycelia.experience.v1 import tensor_pb2
from mycelia_core.codec import BFLOAT16, decode, encode
from mycelia_core.rpc.errors import InvalidArgumentError

DTYPES = [np.dtype(code) for code in "?bhiqBHIQefdFD"] + [BFLOAT16]
NUMPY_DTYPES = [dtype for dtype in DTYPES if dtype != BFLOAT16]


def same(a, b):
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


@given(
    st.sampled_from(NUMPY_DTYPES).flatmap(
        lambda dtype: hnp.arrays(dtype, hnp.array_shapes(min_dims=0, max_dims=4, min_side=0))
    )
)
def test_what_is_encoded_is_decoded_bit_for_bit(array):
    assert same(decode(encode(array)), array)


@given(hnp.arrays(np.float32, hnp.array_shapes(min_dims=0, max_dims=3, min_side=0)))
def test_bfloat16_is_a_dtype_of_its_own(array):
    with np.errstate(all="ignore"):
        array = array.astype(BFLOAT16)

    message = encode(array)

    assert message.dtype == tensor_pb2.D_TYPE_BFLOAT16
    assert same(decode(message), array)


@pytest.mark.parametrize("dtype", [dtype for dtype in NUMPY_DTYPES if dtype.itemsize > 1])
def test_big_endian_input_has_the_same_bytes_as_little_endian(dtype):
    little = np.arange(6).astype(dtype.newbyteorder("<"))

    message = encode(little.astype(dtype.newbyteorder(">")))

    assert message == encode(little)
    np.testing.assert_array_equal(decode(message), little)


@pytest.mark.parametrize(
    "array",
    [
        np.arange(12).reshape(3, 4).T,
        np.arange(12)[::2],
        np.arange(12)[::-1],
        np.asfortranarray(np.ones((3, 4), np.float32)),
        np.broadcast_to(np.float32(2), (3, 2)),
    ],
)
def test_non_contiguous_input_is_sent_in_c_order(array):
    np.testing.assert_array_equal(decode(encode(array)), array)


def test_scalars_and_empty_arrays_keep_their_shape():
    assert decode(encode(np.float32(3))).shape == ()
    assert decode(encode(np.empty((0, 84, 84), np.uint8))).shape == (0, 84, 84)


def test_decoding_does_not_copy_and_cannot_be_written_to():
    array = decode(encode(np.arange(1000)))

    assert not array.flags.writeable
    assert not array.flags.owndata


def test_the_bytes_do_not_follow_later_changes_of_the_array():
    array = np.zeros(3)
    message = encode(array)

    array[:] = 7

    assert decode(message).tolist() == [0, 0, 0]


@pytest.mark.parametrize(
    "array",
    [
        np.array([object()]),
        np.array(["text"]),
        np.array([b"bytes"]),
        np.array(["2020-01-01"], "datetime64[D]"),
        np.zeros(2, np.longdouble),
        np.zeros(2, [("a", "i4")]),
    ],
    ids=lambda array: str(array.dtype),
)
def test_other_dtypes_are_refused_by_name(array):
    with pytest.raises(InvalidArgumentError, match="action: dtype"):
        encode(array, name="action")


@pytest.mark.parametrize("length", [0, 11, 13])
def test_a_byte_count_that_does_not_match_the_shape_is_refused(length):
    message = tensor_pb2.Tensor(dtype=tensor_pb2.D_TYPE_FLOAT32, shape=[3], data=b"x" * length)

    with pytest.raises(InvalidArgumentError, match=rf"camera: got {length} bytes, expected 12"):
        decode(message, name="camera")


@pytest.mark.parametrize("shape", [[-1], [2, -3], [2**62, 2**62, 4]])
def test_hostile_shapes_are_refused(shape):
    message = tensor_pb2.Tensor(dtype=tensor_pb2.D_TYPE_FLOAT64, shape=shape, data=b"x" * 8)

    with pytest.raises(InvalidArgumentError):
        decode(message)


@pytest.mark.parametrize("dtype", [0, 99])
def test_an_unknown_dtype_is_refused(dtype):
    message = tensor_pb2.Tensor(shape=[], data=b"")
    message.dtype = dtype

    with pytest.raises(InvalidArgumentError, match="is not one of the DType values"):
        decode(message)


def test_the_dtypes_have_the_sizes_that_the_contract_states():
    sizes = {decode(encode(np.zeros(1, dtype))).dtype: dtype.itemsize for dtype in DTYPES}

    assert all(dtype.itemsize == size for dtype, size in sizes.items())
    assert ml_dtypes.bfloat16 in [dtype.type for dtype in sizes]
