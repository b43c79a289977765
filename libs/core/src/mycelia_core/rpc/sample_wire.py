"""Sample's responses as bytes: written and read without copying the payload more than once."""

from collections.abc import Iterable
from dataclasses import dataclass

from mycelia.experience.v1 import tensor_pb2
from mycelia.replay.v1 import replay_pb2 as pb
from mycelia_core.parts import Part
from mycelia_core.rpc.wire import field_prefix, fields

METHOD = "/mycelia.replay.v1.ReplayService/Sample"

_PARTS = pb.SampleResponse.PARTS_FIELD_NUMBER
_DATA = tensor_pb2.TensorPart.DATA_FIELD_NUMBER


@dataclass(frozen=True, slots=True)
class Response:
    """A `SampleResponse`, its parts apart from the rest."""

    head: pb.SampleResponse
    """All but the parts."""

    parts: list[Part]
    """Their data are views of the message as it came."""


def write(head: pb.SampleResponse, parts: Iterable[Part]) -> bytes:
    """Serializes `head` with parts added to it; one copy."""
    pieces: list[bytes | memoryview] = [head.SerializeToString()]
    for part in parts:
        place = tensor_pb2.TensorPart(
            tensor_index=part.tensor_index, offset_bytes=part.offset_bytes
        )
        start = place.SerializeToString() + field_prefix(_DATA, len(part.data))
        pieces += [field_prefix(_PARTS, len(start) + len(part.data)), start, part.data]
    return b"".join(pieces)


def read(message: bytes) -> Response:
    """Parses a serialized `SampleResponse`; no copy of the parts.

    Raises:
      ValueError: it is malformed.
      DecodeError: it is malformed.
    """
    rest: list[memoryview] = []
    parts: list[Part] = []
    for number, value, whole in fields(memoryview(message)):
        if number == _PARTS:
            parts.append(_read_part(value))
        else:
            rest.append(whole)
    return Response(pb.SampleResponse.FromString(b"".join(rest)), parts)


def _read_part(message: memoryview) -> Part:
    rest: list[memoryview] = []
    data = memoryview(b"")
    for number, value, whole in fields(message):
        if number == _DATA:
            data = value
        else:
            rest.append(whole)
    place = tensor_pb2.TensorPart.FromString(b"".join(rest))
    return Part(place.tensor_index, place.offset_bytes, data)
