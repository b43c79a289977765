"""The parts of versions that a shard keeps, by name."""

from collections import OrderedDict
from collections.abc import Sequence

from mycelia_core.rpc.errors import NotFoundError

KEPT_BYTES = 64 * 1024 * 1024
"""How much is kept of those put here last, and of those that are to be kept for longer."""

KEPT_AT_LEAST = 4
"""A reader takes a part right after the header that names it; meanwhile newer ones come."""


class PartStore:
    """Keeps the last parts, and the last ones of those to be kept. One event loop owns it."""

    def __init__(self, max_bytes: int = KEPT_BYTES) -> None:
        """Keeps nothing yet."""
        self._recent = _Bounded(max_bytes)
        self._kept = _Bounded(max_bytes)

    def put(self, part_id: str, responses: Sequence[bytes]) -> None:
        """Keeps the responses that carry a part, and lets go of the oldest ones."""
        self._recent.put(part_id, responses)

    def find(self, part_id: str, *, keep: bool = False) -> Sequence[bytes]:
        """Returns the responses that carry a part.

        Args:
          part_id: its name.
          keep: whether it is to be kept for longer.

        Raises:
          NotFoundError: it has never been here, or is no longer kept.
        """
        responses = self._recent.parts.get(part_id) or self._kept.parts.get(part_id)
        if responses is None:
            raise NotFoundError(f"part_id: {part_id!r} is not kept here")
        if keep:
            self._kept.put(part_id, responses)
        return responses

    def __contains__(self, part_id: str) -> bool:
        """Whether a part is here."""
        return part_id in self._recent.parts or part_id in self._kept.parts


class _Bounded:
    """A few parts, the oldest ones let go of."""

    def __init__(self, max_bytes: int) -> None:
        self.parts: OrderedDict[str, Sequence[bytes]] = OrderedDict()
        self._max_bytes = max_bytes
        self._bytes = 0

    def put(self, part_id: str, responses: Sequence[bytes]) -> None:
        if part_id in self.parts:
            self.parts.move_to_end(part_id)
            return
        self.parts[part_id] = responses
        self._bytes += _size(responses)
        while len(self.parts) > KEPT_AT_LEAST and self._bytes > self._max_bytes:
            _, oldest = self.parts.popitem(last=False)
            self._bytes -= _size(oldest)


def _size(responses: Sequence[bytes]) -> int:
    return sum(len(response) for response in responses)
