"""The versions that were handed out last, so that one that proved good can be had again."""

from collections import OrderedDict
from collections.abc import Sequence

from mycelia_core.rpc.errors import NotFoundError

KEPT_BYTES = 64 * 1024 * 1024
"""How much is kept."""

KEPT_AT_LEAST = 4


class HandedOut:
    """Keeps the encoded weights of the last versions that GetWeights returned.

    With gradients applied hundreds of times a second, a version that an evaluator took is long
    gone when its return is known. One event loop owns it.
    """

    def __init__(self, max_bytes: int = KEPT_BYTES) -> None:
        """Keeps nothing yet."""
        self._max_bytes = max_bytes
        self._kept: OrderedDict[int, Sequence[bytes]] = OrderedDict()

    def keep(self, version: int, responses: Sequence[bytes]) -> None:
        """Keeps the responses that carry a version, and lets go of the oldest."""
        self._kept[version] = responses
        self._kept.move_to_end(version)
        while len(self._kept) > KEPT_AT_LEAST and self._size() > self._max_bytes:
            self._kept.popitem(last=False)

    def find(self, version: int) -> Sequence[bytes]:
        """Returns the responses that carry a version.

        Raises:
          NotFoundError: it was not handed out, or is no longer kept.
        """
        try:
            return self._kept[version]
        except KeyError:
            raise NotFoundError(f"version: {version} is not kept") from None

    def clear(self) -> None:
        """Forgets all, for a new run."""
        self._kept.clear()

    def _size(self) -> int:
        return sum(len(part) for responses in self._kept.values() for part in responses)
