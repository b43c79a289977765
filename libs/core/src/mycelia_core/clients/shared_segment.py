"""A segment of memory that a server on the same host shares with its caller."""

import mmap
import os
import stat
import weakref
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from mycelia.replay.v1 import replay_pb2 as pb


class SharedSegment:
    """Maps, read-only, what a server offers.

    The segment is a file without a name in the server's process, found by way
    of `/proc`, so nothing is left behind whoever is killed. It stays mapped
    while anybody uses an array over it.
    """

    def __init__(self, offer: pb.SharedMemory) -> None:
        """Maps the segment.

        Raises:
          OSError: the server's process is on another host, in another
            container or another user's.
          ValueError: a process of that number is here, but it is not the server.
        """
        path = f"/proc/{offer.pid}/fd/{offer.fd}"
        # Not blocking, in case it is some other process's pipe.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            found = os.fstat(descriptor)
            if not stat.S_ISREG(found.st_mode) or found.st_size != offer.size_bytes:
                raise ValueError(f"{path} is not the segment of {offer.size_bytes} bytes")
            self._memory = mmap.mmap(descriptor, offer.size_bytes, prot=mmap.PROT_READ)
        finally:
            os.close(descriptor)
        if not offer.nonce or self._memory[: len(offer.nonce)] != offer.nonce:
            raise ValueError(f"{path} does not begin with the server's nonce")

    def view(self, release: Callable[[], None]) -> NDArray[np.uint8]:
        """Returns the segment as read-only bytes.

        Args:
          release: called once neither they nor an array over them is used any more.
        """
        view = np.frombuffer(self._memory, np.uint8)
        weakref.finalize(view, release).atexit = False
        return view
