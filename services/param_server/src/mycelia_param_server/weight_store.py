"""The newest weights, and the wait for newer ones."""

import asyncio

from mycelia.params.v1 import params_pb2 as pb
from mycelia_core.rpc.errors import AbortedError
from mycelia_param_server.weight_intake import Snapshot, WeightIntake

EMPTY = Snapshot(pb.WeightsHeader(), ())
"""What there is before the first publish: version 0."""


class WeightStore:
    """Holds the newest version and nothing older; a reader holds what it is sending.

    One event loop owns it.
    """

    def __init__(self) -> None:
        """Starts without weights."""
        self._newest = EMPTY
        self._changed = asyncio.Event()

    @property
    def newest(self) -> Snapshot:
        """The newest version; the empty one if nothing has been published."""
        return self._newest

    def find_repeat(self, expected_version: int, header: pb.WeightsHeader) -> int | None:
        """Returns the newest version if this is the publish that made it, sent again.

        Returns:
          None if it is a publish that would make the next version.

        Raises:
          AbortedError: `expected_version` is not the newest.
        """
        newest = self._newest
        if expected_version == newest.version:
            return None
        is_repeat = (
            expected_version == newest.version - 1
            and header.crc32 == newest.header.crc32
            and header.tensors == newest.header.tensors
        )
        if is_repeat:
            return newest.version
        raise AbortedError(
            f"expected_version: got {expected_version}, the newest is {newest.version}"
        )

    def publish(self, expected_version: int, intake: WeightIntake) -> int:
        """Makes complete weights the newest, all at once, and returns their version.

        Raises:
          AbortedError: another publish came first.
          InvalidArgumentError: bytes are missing, or the checksum is wrong.
        """
        repeated = self.find_repeat(expected_version, intake.header)
        if repeated is not None:
            return repeated
        self._replace(intake.finish(expected_version + 1))
        return self._newest.version

    def clear(self) -> None:
        """Forgets the weights, for a new run. Wakes whoever waits."""
        self._replace(EMPTY)

    async def wait_for_change(self, seen: Snapshot) -> None:
        """Waits until the newest version is not `seen`, or somebody calls `wake`."""
        if self._newest is seen:
            await self._changed.wait()

    def wake(self) -> None:
        """Wakes whoever waits, to look at more than the version."""
        self._changed.set()
        self._changed = asyncio.Event()

    def _replace(self, snapshot: Snapshot) -> None:
        self._newest = snapshot
        self.wake()
