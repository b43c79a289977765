"""Named tensors with a version: what is published, watched and acted with."""

import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from mycelia.experience.v1 import tensor_pb2
from mycelia.params.v1 import params_pb2
from mycelia_core.codec import BFLOAT16, raw_bytes
from mycelia_core.parts import Assembler, tensor_spec
from mycelia_core.rpc.errors import InvalidArgumentError

MAX_WEIGHTS_BYTES = 4 * 1024**3
"""The most that one version of the weights may have, unless a server is told otherwise."""

STATISTICS = "statistics/"
"""How the names of running statistics begin, among the weights that they travel with."""

WireDtype = Literal["float32", "bfloat16", "float16"]

WIRE_DTYPES: dict[WireDtype, np.dtype[Any]] = {
    "float32": np.dtype(np.float32),
    "bfloat16": BFLOAT16,
    "float16": np.dtype(np.float16),
}
"""What float32 tensors may be sent as."""


@dataclass(frozen=True)
class Weights:
    """One version of a policy's weights. The arrays are not to be written to."""

    version: int
    learner_step: int
    tensors: Mapping[str, NDArray[Any]]
    publish_time: float = 0.0
    """When the server took them in, in seconds since 1970."""

    placement: Mapping[str, str] = field(default_factory=dict)
    """By tensor, the address of the server that keeps it, where that is not the run's first."""


def narrow(array: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Returns a float32 array as `dtype`, which may have 16 bits; others as they are."""
    array = np.asarray(array)
    return array.astype(dtype) if array.dtype == np.float32 and dtype != np.float32 else array


def widen(array: NDArray[Any]) -> NDArray[Any]:
    """Returns an array of 16 bits as float32; others as they are."""
    return array.astype(np.float32) if array.dtype in (BFLOAT16, np.float16) else array


def checksum(tensors: Iterable[NDArray[Any]]) -> int:
    """Returns the CRC-32 of all tensors' bytes, one after the other."""
    crc = 0
    for array in tensors:
        crc = zlib.crc32(raw_bytes(array), crc)
    return crc


def make_header(weights: Weights) -> params_pb2.WeightsHeader:
    """Describes weights for the messages that carry them."""
    header = params_pb2.WeightsHeader(
        version=weights.version,
        learner_step=weights.learner_step,
        tensors=[tensor_spec(name, array) for name, array in weights.tensors.items()],
        crc32=checksum(weights.tensors.values()),
    )
    if weights.publish_time:
        header.publish_time.FromNanoseconds(int(weights.publish_time * 1e9))
    return header


class WeightsReader:
    """Puts one version of the weights together from its header and parts."""

    def __init__(
        self, header: params_pb2.WeightsHeader, max_bytes: int = MAX_WEIGHTS_BYTES
    ) -> None:
        """Prepares for what the header announces.

        Raises:
          InvalidArgumentError: the header is malformed.
          ResourceExhaustedError: the weights are larger than `max_bytes`.
        """
        self._header = header
        self._assembler = Assembler(header.tensors, max_bytes)

    def add(self, parts: Iterable[tensor_pb2.TensorPart]) -> None:
        """Takes in parts; raises `InvalidArgumentError` if they do not fit the header."""
        self._assembler.add(parts)

    def finish(self) -> Weights:
        """Returns the weights.

        Raises:
          InvalidArgumentError: bytes are missing, or the checksum is wrong.
        """
        tensors = self._assembler.finish()
        crc = checksum(tensors.values())
        if crc != self._header.crc32:
            raise InvalidArgumentError(
                f"weights: the checksum is {crc}, the header announces {self._header.crc32}"
            )
        if self._header.narrowed:
            tensors = {name: widen(array) for name, array in tensors.items()}
        return Weights(
            self._header.version,
            self._header.learner_step,
            tensors,
            self._header.publish_time.ToNanoseconds() / 1e9,
        )
