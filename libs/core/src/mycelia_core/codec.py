"""Arrays to and from protobuf tensors, without copies where there need be none."""

import math
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import ArrayLike, NDArray

from mycelia.experience.v1 import tensor_pb2
from mycelia_core.rpc.errors import InvalidArgumentError

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
"""The upper half of a float32; numpy has no dtype of its own for it."""

_DTYPE_OF_PROTO: dict[int, np.dtype[Any]] = {
    tensor_pb2.D_TYPE_BOOL: np.dtype(np.bool_),
    tensor_pb2.D_TYPE_INT8: np.dtype("<i1"),
    tensor_pb2.D_TYPE_INT16: np.dtype("<i2"),
    tensor_pb2.D_TYPE_INT32: np.dtype("<i4"),
    tensor_pb2.D_TYPE_INT64: np.dtype("<i8"),
    tensor_pb2.D_TYPE_UINT8: np.dtype("<u1"),
    tensor_pb2.D_TYPE_UINT16: np.dtype("<u2"),
    tensor_pb2.D_TYPE_UINT32: np.dtype("<u4"),
    tensor_pb2.D_TYPE_UINT64: np.dtype("<u8"),
    tensor_pb2.D_TYPE_FLOAT16: np.dtype("<f2"),
    tensor_pb2.D_TYPE_FLOAT32: np.dtype("<f4"),
    tensor_pb2.D_TYPE_FLOAT64: np.dtype("<f8"),
    tensor_pb2.D_TYPE_BFLOAT16: BFLOAT16,
    tensor_pb2.D_TYPE_COMPLEX64: np.dtype("<c8"),
    tensor_pb2.D_TYPE_COMPLEX128: np.dtype("<c16"),
}
_PROTO_OF_DTYPE = {dtype: value for value, dtype in _DTYPE_OF_PROTO.items()}


def dtype_to_proto(dtype: np.dtype[Any], name: str = "tensor") -> tensor_pb2.DType.ValueType:
    """Returns the wire's name of a dtype; the byte order does not matter.

    Raises:
      InvalidArgumentError: the wire has no such type (objects, text, dates, long doubles).
    """
    value = _PROTO_OF_DTYPE.get(dtype)
    if value is None and dtype.kind in "iufc":
        value = _PROTO_OF_DTYPE.get(dtype.newbyteorder("<"))
    if value is None:
        raise InvalidArgumentError(f"{name}: dtype {dtype} cannot be sent; send numbers or bool")
    return value  # type: ignore[return-value]


def dtype_from_proto(value: int, name: str = "tensor") -> np.dtype[Any]:
    """Returns the little-endian dtype for the wire's name of it.

    Raises:
      InvalidArgumentError: the value is not set or not known.
    """
    dtype = _DTYPE_OF_PROTO.get(value)
    if dtype is None:
        raise InvalidArgumentError(f"{name}: dtype {value} is not one of the DType values")
    return dtype


def encode(array: ArrayLike, *, name: str = "tensor") -> tensor_pb2.Tensor:
    """Encodes an array of any shape, order and byte order; one copy.

    Args:
      array: any numeric or bool array, bfloat16 included.
      name: what to call it in an error.

    Raises:
      InvalidArgumentError: its dtype cannot be sent.
    """
    array = np.asarray(array)
    return tensor_pb2.Tensor(
        dtype=dtype_to_proto(array.dtype, name), shape=array.shape, data=raw_bytes(array)
    )


def decode(
    tensor: tensor_pb2.Tensor, *, name: str = "tensor", data: bytes | memoryview | None = None
) -> NDArray[Any]:
    """Decodes a tensor into a read-only array over the bytes as protobuf hands them out.

    Args:
      tensor: as it came.
      name: what to call it in an error.
      data: its elements, if they were kept apart from it.

    Raises:
      InvalidArgumentError: dtype unknown, an axis negative, or the number of
        bytes is not what dtype and shape ask for.
    """
    dtype = dtype_from_proto(tensor.dtype, name)
    shape = tuple(tensor.shape)
    expected = expected_bytes(dtype, shape, name)
    data = tensor.data if data is None else data  # protobuf copies at each access
    if len(data) != expected:
        raise InvalidArgumentError(
            f"{name}: got {len(data)} bytes, expected {expected} for {dtype} {list(shape)}"
        )
    return np.frombuffer(data, dtype).reshape(shape)


def byte_view(array: NDArray[Any]) -> memoryview:
    """Returns the elements in C order, little-endian; a view of the array where it lies so."""
    if array.dtype.byteorder == ">" or (array.dtype.byteorder == "=" and _BIG_ENDIAN):
        array = array.astype(array.dtype.newbyteorder("<"))
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


def raw_bytes(array: NDArray[Any]) -> bytes:
    """Returns the elements in C order, little-endian."""
    if array.dtype.byteorder == ">" or (array.dtype.byteorder == "=" and _BIG_ENDIAN):
        array = array.astype(array.dtype.newbyteorder("<"))
    return array.tobytes()


def expected_bytes(dtype: np.dtype[Any], shape: tuple[int, ...], name: str = "tensor") -> int:
    """Returns how many bytes a tensor of this form has.

    Raises:
      InvalidArgumentError: an axis is negative.
    """
    if any(axis < 0 for axis in shape):
        raise InvalidArgumentError(f"{name}: shape {list(shape)} has a negative axis")
    # Python integers, so that a hostile shape cannot overflow.
    return dtype.itemsize * math.prod(shape)


_BIG_ENDIAN = np.dtype("<i2") != np.dtype("=i2")
