"""Credit: how many more batches the caller of Sample is ready to take, and where."""

import asyncio
from collections.abc import AsyncIterator

from mycelia.replay.v1 import replay_pb2 as pb
from mycelia_core.rpc.errors import InvalidArgumentError, StatusError
from mycelia_replay.shared_memory import SharedMemory


class Credit:
    """Adds up the credit of one call while batches are sent. One event loop owns it."""

    def __init__(self) -> None:
        """Starts without credit."""
        self._first: pb.SampleRequest | None = None
        self._left = 0
        self._ended = False
        self._error: StatusError | None = None
        self._changed = asyncio.Event()
        self.shared_memory: SharedMemory | None = None
        """Where large batches go, once it has been offered."""

    async def read(self, requests: AsyncIterator[pb.SampleRequest]) -> None:
        """Takes in requests until the caller sends no more."""
        try:
            async for request in requests:
                self._add(request)
        except StatusError as error:
            self.fail(error)
        finally:
            self._ended = True
            self._changed.set()

    async def first(self) -> pb.SampleRequest | None:
        """Waits for the call's first request; None if there is none."""
        await self._wait()
        return self._first

    async def take(self) -> bool:
        """Waits for credit and uses one of it up; False once no more will come.

        Raises:
          StatusError: a request was malformed, or the call is to end.
        """
        while not self._left and not self._ended:
            self._changed.clear()
            await self._wait()
        if self._error:
            raise self._error
        if not self._left:
            return False
        self._left -= 1
        return True

    def fail(self, error: StatusError) -> None:
        """Ends the call with an error as soon as it asks for credit."""
        self._error = error
        self._changed.set()

    def close(self) -> None:
        """Lets go of the shared memory; a caller that uses it keeps it as long as it does."""
        if self.shared_memory:
            self.shared_memory.close()

    async def _wait(self) -> None:
        await self._changed.wait()
        if self._error:
            raise self._error

    def _add(self, request: pb.SampleRequest) -> None:
        about_memory = request.HasField("shared_memory_attached") or request.released_batches
        if request.credit < (0 if about_memory and self._first else 1):
            raise InvalidArgumentError(f"credit: got {request.credit}, expected at least 1")
        if self.shared_memory:
            if request.HasField("shared_memory_attached"):
                self.shared_memory.begin(request.shared_memory_attached)
            self.shared_memory.release(request.released_batches)
        self._first = self._first or request
        self._left += request.credit
        self._changed.set()
