"""Protobuf's wire format, for messages with so many bytes in them that copies count.

Protobuf copies a `bytes` field when it is set, when the message is serialized,
when it is parsed, and when the field is read. Here the bytes are joined to the
rest of a message once, and read where they came in. The messages are the same.
"""

from collections.abc import Iterator

_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5


def field_prefix(number: int, size: int) -> bytes:
    """Returns what goes before the `size` bytes of field `number`."""
    return _varint(number << 3 | _LENGTH) + _varint(size)


def fields(message: memoryview) -> Iterator[tuple[int, memoryview, memoryview]]:
    """Yields the fields of a serialized message: number, value and the field as a whole.

    The value of a field with a length is its bytes; that of others is empty.

    Raises:
      ValueError: the message is cut off or malformed.
    """
    start, end = 0, len(message)
    while start < end:
        key, position = _read_varint(message, start)
        kind = key & 7
        begin = position
        if kind == _LENGTH:
            size, begin = _read_varint(message, position)
            position = begin + size
        elif kind == _VARINT:
            _, position = _read_varint(message, position)
            begin = position
        elif kind in (_FIXED64, _FIXED32):
            position += 8 if kind == _FIXED64 else 4
            begin = position
        else:
            raise ValueError(f"wire type {kind} at byte {start}")
        if position > end:
            raise ValueError(f"field {key >> 3} at byte {start} is cut off")
        yield key >> 3, message[begin:position], message[start:position]
        start = position


def _varint(value: int) -> bytes:
    pieces = bytearray()
    while value > 0x7F:
        pieces.append(value & 0x7F | 0x80)
        value >>= 7
    pieces.append(value)
    return bytes(pieces)


def _read_varint(message: memoryview, position: int) -> tuple[int, int]:
    value = shift = 0
    while position < len(message) and shift < 70:
        byte = message[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
    raise ValueError(f"a number is cut off at byte {position}")
