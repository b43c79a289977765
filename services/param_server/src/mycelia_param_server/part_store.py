"""The parts of versions that a shard keeps, by name."""

from collections import OrderedDict

from mycelia_core.rpc.errors import NotFoundError
from mycelia_param_server.snapshot import Snapshot

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

    def put(self, part_id: str, part: Snapshot, *, keep: bool = False) -> None:
        """Keeps a part, with `keep` for longer, and lets go of the oldest ones."""
        (self._kept if keep else self._recent).put(part_id, part)

    def find(self, part_id: str, *, keep: bool = False) -> Snapshot:
        """Returns a part.

        Args:
          part_id: its name.
          keep: whether it is to be kept for longer.

        Raises:
          NotFoundError: it has never been here, or is no longer kept.
        """
        part = self._recent.parts.get(part_id) or self._kept.parts.get(part_id)
        if part is None:
            raise NotFoundError(f"part_id: {part_id!r} is not kept here")
        if keep:
            self._kept.put(part_id, part)
        return part

    @property
    def part_count(self) -> int:
        """How many parts are kept; one that is kept for longer may count twice."""
        return len(self._recent.parts) + len(self._kept.parts)

    @property
    def nbytes(self) -> int:
        """How many bytes those parts have."""
        return self._recent.nbytes + self._kept.nbytes

    def __contains__(self, part_id: str) -> bool:
        """Whether a part is here."""
        return part_id in self._recent.parts or part_id in self._kept.parts


class _Bounded:
    """A few parts, the oldest ones let go of."""

    def __init__(self, max_bytes: int) -> None:
        self.parts: OrderedDict[str, Snapshot] = OrderedDict()
        self._max_bytes = max_bytes
        self.nbytes = 0

    def put(self, part_id: str, part: Snapshot) -> None:
        if part_id in self.parts:
            self.parts.move_to_end(part_id)
            return
        self.parts[part_id] = part
        self.nbytes += part.nbytes
        while len(self.parts) > KEPT_AT_LEAST and self.nbytes > self._max_bytes:
            _, oldest = self.parts.popitem(last=False)
            self.nbytes -= oldest.nbytes
