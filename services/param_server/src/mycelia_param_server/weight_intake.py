"""One version of the weights on its way in: checked part by part, kept ready to be sent."""

import time
import zlib
from collections.abc import Iterable

from mycelia.experience.v1 import tensor_pb2
from mycelia.params.v1 import params_pb2 as pb
from mycelia_core.codec import dtype_from_proto, expected_bytes
from mycelia_core.parts import PART_BYTES
from mycelia_core.rpc.errors import InvalidArgumentError, ResourceExhaustedError
from mycelia_param_server.snapshot import EncodedSnapshot, join_first


class WeightIntake:
    """Takes in what a publisher sends, and refuses what is not as announced.

    The tensors' bytes are held once. One publish call owns it.
    """

    def __init__(self, header: pb.WeightsHeader, max_weight_bytes: int) -> None:
        """Prepares for the announced tensors.

        Raises:
          InvalidArgumentError: the header is malformed.
          ResourceExhaustedError: the tensors have more than `max_weight_bytes` together.
        """
        self.header = header
        self._names = [spec.name for spec in header.tensors]
        self._sizes = _sizes(header.tensors)
        if sum(self._sizes) > max_weight_bytes:
            raise ResourceExhaustedError(
                f"header.tensors: {sum(self._sizes)} bytes, over this parameter server's "
                f"--max-weight-bytes of {max_weight_bytes}"
            )
        self._crc = 0
        self._current = 0
        """The tensor whose bytes come next."""

        self._received = 0
        """How many of its bytes are there."""

        self._sealed: list[bytes] = []
        self._open: list[tensor_pb2.TensorPart] = []
        self._open_bytes = 0

    def add(self, parts: Iterable[tensor_pb2.TensorPart]) -> None:
        """Takes in parts, in the order of the tensors and of their bytes.

        Raises:
          InvalidArgumentError: a part does not continue where the one before ended.
        """
        for part in parts:
            self._advance()
            self._check(part)
            self._received += len(part.data)
            self._crc = zlib.crc32(part.data, self._crc)
            self._keep(part)

    def finish(self, version: int, publish_time: float | None = None) -> EncodedSnapshot:
        """Returns the complete weights as `version`.

        Args:
          version: what the weights are to be called.
          publish_time: seconds since 1970; now if not given.

        Raises:
          InvalidArgumentError: bytes are missing, or the checksum is wrong.
        """
        self._advance()
        if self._current < len(self._sizes):
            raise InvalidArgumentError(
                f"{self._names[self._current]}: got {self._received} bytes, "
                f"expected {self._sizes[self._current]}"
            )
        if self._crc != self.header.crc32:
            raise InvalidArgumentError(
                f"header.crc32: got {self.header.crc32}, the tensors' bytes have {self._crc}"
            )
        header = pb.WeightsHeader()
        header.CopyFrom(self.header)
        header.version = version
        seconds = time.time() if publish_time is None else publish_time
        header.publish_time.FromNanoseconds(int(seconds * 1e9))
        self._seal(last=True)
        first = pb.WatchWeightsResponse(header=header).SerializeToString()
        return EncodedSnapshot(header, join_first(first, self._sealed))

    def _advance(self) -> None:
        """Goes on to the next tensor that lacks bytes; those of size 0 need no part."""
        while self._current < len(self._sizes) and self._received == self._sizes[self._current]:
            self._current += 1
            self._received = 0

    def _check(self, part: tensor_pb2.TensorPart) -> None:
        if not part.data:
            raise InvalidArgumentError(f"parts: one of tensor_index {part.tensor_index} is empty")
        if self._current == len(self._sizes):
            raise InvalidArgumentError(
                f"parts: got one of tensor_index {part.tensor_index}, "
                f"but all {len(self._sizes)} tensors are complete"
            )
        name, size = self._names[self._current], self._sizes[self._current]
        if part.tensor_index != self._current or part.offset_bytes != self._received:
            raise InvalidArgumentError(
                f"{name}: got bytes at {part.offset_bytes} of tensor_index {part.tensor_index}, "
                f"expected {self._received} of {self._current}"
            )
        if part.offset_bytes + len(part.data) > size:
            raise InvalidArgumentError(
                f"{name}: got {part.offset_bytes + len(part.data)} bytes, expected {size}"
            )

    def _keep(self, part: tensor_pb2.TensorPart) -> None:
        if self._open and self._open_bytes + len(part.data) > PART_BYTES:
            self._seal(last=False)
        self._open.append(part)
        self._open_bytes += len(part.data)

    def _seal(self, *, last: bool) -> None:
        """Encodes what is open as one response; small parts share it, whatever they came in."""
        response = pb.WatchWeightsResponse(parts=self._open, last=last)
        self._sealed.append(response.SerializeToString())
        self._open = []
        self._open_bytes = 0


def _sizes(specs: Iterable[tensor_pb2.TensorSpec]) -> list[int]:
    sizes: dict[str, int] = {}
    for index, spec in enumerate(specs):
        if not spec.name:
            raise InvalidArgumentError(f"header.tensors: number {index} has no name")
        if spec.name in sizes:
            raise InvalidArgumentError(f"header.tensors: {spec.name!r} comes twice")
        dtype = dtype_from_proto(spec.dtype, spec.name)
        sizes[spec.name] = expected_bytes(dtype, tuple(spec.shape), spec.name)
    if not sizes:
        raise InvalidArgumentError("header.tensors: none announced, expected at least one")
    return list(sizes.values())
