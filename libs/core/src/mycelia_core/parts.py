"""Cuts lists of arrays into message-sized parts and puts them together again."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mycelia.experience.v1 import tensor_pb2
from mycelia_core.codec import byte_view, dtype_from_proto, dtype_to_proto, expected_bytes
from mycelia_core.rpc.errors import InvalidArgumentError, ResourceExhaustedError

PART_BYTES = 1024 * 1024
"""The most payload in one message. Measured: throughput over gRPC is flat from
100 KB to 2 MB a message, and falls above."""


def tensor_spec(name: str, array: NDArray[Any]) -> tensor_pb2.TensorSpec:
    """Describes an array for the header that announces it."""
    return tensor_pb2.TensorSpec(
        name=name, dtype=dtype_to_proto(array.dtype, name), shape=array.shape
    )


class Part(NamedTuple):
    """A `TensorPart` whose data need not be copied."""

    tensor_index: int
    offset_bytes: int
    data: memoryview | bytes


def cut(arrays: Iterable[NDArray[Any]], part_bytes: int = PART_BYTES) -> Iterator[list[Part]]:
    """Yields lists of parts, each list of at most `part_bytes` of payload; copies nothing.

    Small tensors share a list, large ones are cut. At least one list comes,
    empty if there is nothing to send, so that a header always has a message.
    """
    batch: list[Part] = []
    room = part_bytes
    for index, array in enumerate(arrays):
        data = byte_view(array)
        offset = 0
        while offset < len(data):
            if room == 0:
                yield batch
                batch, room = [], part_bytes
            piece = data[offset : offset + room]
            batch.append(Part(index, offset, piece))
            offset += len(piece)
            room -= len(piece)
    yield batch


def split(
    arrays: Iterable[NDArray[Any]], part_bytes: int = PART_BYTES
) -> Iterator[list[tensor_pb2.TensorPart]]:
    """Yields what `cut` does as messages."""
    for batch in cut(arrays, part_bytes):
        yield [
            tensor_pb2.TensorPart(tensor_index=index, offset_bytes=offset, data=bytes(data))
            for index, offset, data in batch
        ]


class Assembler:
    """Puts the tensors of a header together from their parts.

    A tensor that comes in one part is not copied.
    """

    def __init__(self, specs: Sequence[tensor_pb2.TensorSpec], max_bytes: int) -> None:
        """Prepares for the announced tensors.

        Args:
          specs: the tensors, as the header announces them.
          max_bytes: the most that they may have together.

        Raises:
          InvalidArgumentError: a name comes twice, or dtype or shape is wrong.
          ResourceExhaustedError: together they are larger than `max_bytes`.
        """
        self._names = [spec.name for spec in specs]
        if len(set(self._names)) != len(self._names):
            raise InvalidArgumentError("tensors: a name is announced twice")
        self._dtypes = [dtype_from_proto(spec.dtype, spec.name) for spec in specs]
        self._shapes = [tuple(spec.shape) for spec in specs]
        self._sizes = [
            expected_bytes(dtype, shape, name)
            for dtype, shape, name in zip(self._dtypes, self._shapes, self._names, strict=True)
        ]
        if sum(self._sizes) > max_bytes:
            raise ResourceExhaustedError(
                f"tensors have {sum(self._sizes)} bytes together, over the limit of {max_bytes}"
            )
        self._buffers: list[bytes | memoryview] = [b""] * len(specs)
        self._received = [0] * len(specs)

    def add(self, parts: Iterable[tensor_pb2.TensorPart | Part]) -> None:
        """Takes in parts, each tensor's in order.

        Raises:
          InvalidArgumentError: a part is of no announced tensor, or leaves a
            gap, or goes past the tensor's end.
        """
        for part in parts:
            index = part.tensor_index
            if not 0 <= index < len(self._names):
                raise InvalidArgumentError(
                    f"parts: tensor_index {index} is not one of the {len(self._names)} announced"
                )
            self._add(index, part.offset_bytes, part.data)

    def _add(self, index: int, offset: int, data: bytes | memoryview) -> None:
        name, size, received = self._names[index], self._sizes[index], self._received[index]
        if offset != received or offset + len(data) > size:
            raise InvalidArgumentError(
                f"{name}: got bytes [{offset}, {offset + len(data)}), "
                f"expected them to begin at {received} and to end by {size}"
            )
        if len(data) == size:
            self._buffers[index] = data
        else:
            if received == 0:
                self._buffers[index] = np.empty(size, np.uint8).data
            self._buffers[index][offset : offset + len(data)] = data  # type: ignore[index]
        self._received[index] += len(data)

    def finish(self) -> dict[str, NDArray[Any]]:
        """Returns the tensors by name, in the order announced.

        Raises:
          InvalidArgumentError: bytes of a tensor are missing.
        """
        for name, size, received in zip(self._names, self._sizes, self._received, strict=True):
            if received != size:
                raise InvalidArgumentError(f"{name}: got {received} bytes, expected {size}")
        return {
            name: np.frombuffer(buffer, dtype).reshape(shape)
            for name, buffer, dtype, shape in zip(
                self._names, self._buffers, self._dtypes, self._shapes, strict=True
            )
        }
