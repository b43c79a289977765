"""Memory shared with a caller on the same host, for batches that are large."""

import fcntl
import mmap
import os
import secrets
from collections import deque
from collections.abc import Iterable
from typing import Any

import numpy as np

from mycelia.replay.v1 import replay_pb2 as pb
from mycelia_replay.arrays import AnyArray

LEAST_BATCH_BYTES = 256 * 1024
"""Smaller batches fit into one message, which costs less than minding the memory."""

MOST_BYTES = 512 * 1024 * 1024
"""The most memory shared with one caller."""

MOST_PLACES = 16

ALIGNMENT = 64
"""What every array begins at a multiple of: a cache line."""

NONCE_BYTES = 16

_LOOPBACK = ("unix:", "ipv4:127.", "ipv6:[::1]", "ipv6:%5B::1%5D")


def is_local(peer: str) -> bool:
    """Tells whether a caller, as gRPC names it, may be on this host."""
    return peer.startswith(_LOOPBACK)


class Place:
    """Room for one batch in a segment."""

    def __init__(self, memory: AnyArray, start: int, size: int) -> None:
        """Starts empty, at `start` of the segment's bytes."""
        self._memory = memory
        self._next = start
        self._end = start + size
        self._offsets: dict[int, int] = {}

    def allocate(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> AnyArray:
        """Makes an array in the segment, or outside if there is no room left."""
        size = dtype.itemsize * int(np.prod(shape))
        start, end = self._next, self._next + size
        if end > self._end:
            return np.empty(shape, dtype)
        self._next = -(-end // ALIGNMENT) * ALIGNMENT
        array = self._memory[start:end].view(dtype).reshape(shape)
        self._offsets[array.ctypes.data] = start
        return array

    def offset_of(self, array: AnyArray) -> int | None:
        """Returns where in the segment an array of this place begins, moving it there if it can."""
        offset = self._offsets.get(array.ctypes.data)
        if offset is None:
            moved = self.allocate(array.shape, array.dtype)
            moved[...] = array
            offset = self._offsets.get(moved.ctypes.data)
        return offset


class SharedMemory:
    """A segment with room for some batches, used one after another. One `Sample` call owns it.

    The segment has no name in any file system: it is gone when both ends are.
    """

    def __init__(self, batch_bytes: int, place_count: int) -> None:
        """Reserves memory; pages are touched as they are used.

        Args:
          batch_bytes: how large a batch is, about.
          place_count: how many are under way at most.

        Raises:
          OSError: there is no such memory on this system.
        """
        # Compressed batches differ in size; one that has no room goes by gRPC.
        self._place_bytes = -(-(batch_bytes + batch_bytes // 4) // mmap.PAGESIZE) * mmap.PAGESIZE
        self._place_count = max(1, min(place_count, MOST_PLACES, MOST_BYTES // self._place_bytes))
        size = mmap.PAGESIZE + self._place_bytes * self._place_count
        self._descriptor = os.memfd_create("mycelia-batches", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(self._descriptor, size)
        # Nobody may cut it off under the other's feet.
        fcntl.fcntl(self._descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
        self._memory = np.frombuffer(mmap.mmap(self._descriptor, size), np.uint8)
        nonce = secrets.token_bytes(NONCE_BYTES)
        self._memory[:NONCE_BYTES] = np.frombuffer(nonce, np.uint8)
        self.offer = pb.SharedMemory(
            pid=os.getpid(), fd=self._descriptor, size_bytes=size, nonce=nonce
        )
        """What the caller needs to know."""
        self._free: deque[int] = deque()
        self._used: dict[int, int] = {}

    @property
    def nbytes(self) -> int:
        """Bytes reserved."""
        return self._memory.nbytes

    def begin(self, attached: bool) -> None:
        """Takes note of whether the caller has attached the segment; only then is it used."""
        self._free = deque(range(self._place_count) if attached else ())
        self._close_descriptor()

    def place(self) -> Place | None:
        """Returns the place for the next batch; None if all are in use."""
        if not self._free:
            return None
        start = mmap.PAGESIZE + self._free[0] * self._place_bytes
        return Place(self._memory, start, self._place_bytes)

    def use(self, batch_index: int) -> None:
        """Takes note that this batch lies in the last `place`."""
        self._used[batch_index] = self._free.popleft()

    def release(self, batch_indices: Iterable[int]) -> None:
        """Takes note that the caller has done with batches; ignores those that are not in use."""
        for batch_index in batch_indices:
            if batch_index in self._used:
                self._free.append(self._used.pop(batch_index))

    def close(self) -> None:
        """Lets go of the memory; a caller that has attached it keeps it as long as it uses it."""
        self._close_descriptor()
        self._free.clear()
        self._memory = np.empty(0, np.uint8)

    def _close_descriptor(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
