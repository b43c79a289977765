"""Which slots of the network's memory belong to which stream."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from mycelia_core.rpc.errors import InvalidArgumentError, ResourceExhaustedError, UnavailableError


@dataclass(eq=False, slots=True)
class Lease:
    """The slots of one stream."""

    slots: NDArray[np.int64]
    """[n] where the memory of each of the stream's environments is."""

    fresh: NDArray[np.bool_] = field(init=False)
    """[n] whether nothing has been seen of it. The thread that evaluates owns it."""

    ended: bool = False
    """Whether nobody waits for the stream's requests any more."""

    def __post_init__(self) -> None:
        """Nothing has been seen yet."""
        self.fresh = np.ones(len(self.slots), np.bool_)


class SlotTable:
    """Leases slots to streams. The event loop owns it."""

    def __init__(self, capacity: int) -> None:
        """Has `capacity` slots, all free."""
        self._capacity = capacity
        self._free = list(range(capacity - 1, -1, -1))
        self.lease_count = 0

    @property
    def used_count(self) -> int:
        """How many slots are leased."""
        return self._capacity - len(self._free)

    def take(self, count: int) -> Lease:
        """Leases `count` slots.

        Raises:
          InvalidArgumentError: `count` is not positive.
          ResourceExhaustedError: there are fewer slots in all.
          UnavailableError: others have too many of them.
        """
        if count < 1:
            raise InvalidArgumentError(f"slot_count: got {count}, expected >= 1")
        if count > self._capacity:
            raise ResourceExhaustedError(
                f"slot_count: got {count}, inference.max_slots is {self._capacity}"
            )
        if count > len(self._free):
            raise UnavailableError(
                f"slot_count: got {count}, {len(self._free)} of {self._capacity} slots are free"
            )
        self.lease_count += 1
        return Lease(np.array([self._free.pop() for _ in range(count)]))

    def give_back(self, lease: Lease) -> None:
        """Frees the slots of a stream that has ended."""
        lease.ended = True
        self.lease_count -= 1
        self._free.extend(lease.slots.tolist())
