"""The newest weights, and the wait for newer ones."""

import asyncio

from mycelia.params.v1 import params_pb2 as pb
from mycelia_core.rpc.errors import AbortedError
from mycelia_param_server.handed_out import HandedOut
from mycelia_param_server.snapshot import EncodedSnapshot, Snapshot
from mycelia_param_server.weight_intake import WeightIntake

EMPTY = EncodedSnapshot(pb.WeightsHeader(), ())
"""What there is before the first publish: version 0."""


class WeightStore:
    """Holds the newest version, and the last ones that GetWeights has handed out.

    One event loop owns it.
    """

    def __init__(self) -> None:
        """Starts without weights."""
        self._newest: Snapshot = EMPTY
        self._published = EMPTY.header
        """Of the newest version that came from a publisher."""

        self.handed_out = HandedOut()
        """Versions that can be had again."""

        self._changed = asyncio.Event()
        self.writing = asyncio.Lock()
        """Held while a new version is made over more than one step of the loop."""

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
            expected_version == self._published.version - 1
            and self._published.version == newest.version
            and header.crc32 == self._published.crc32
            and header.tensors == self._published.tensors
            and header.shards == self._published.shards
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
        snapshot = intake.finish(expected_version + 1)
        self.advance(snapshot, published=snapshot.header)
        return snapshot.version

    def advance(self, snapshot: Snapshot, published: pb.WeightsHeader | None = None) -> None:
        """Makes a snapshot the newest, and wakes whoever waits.

        Args:
          snapshot: the new version.
          published: its header as its publisher sent it, if it came from one.
        """
        self._published = published or self._published
        self._newest = snapshot
        self.wake()

    def clear(self) -> None:
        """Forgets the weights, for a new run. Wakes whoever waits."""
        self.handed_out.clear()
        self.advance(EMPTY, published=EMPTY.header)

    async def wait_for_change(self, seen: Snapshot) -> None:
        """Waits until the newest version is not `seen`, or somebody calls `wake`."""
        if self._newest is seen:
            await self._changed.wait()

    def wake(self) -> None:
        """Wakes whoever waits, to look at more than the version."""
        self._changed.set()
        self._changed = asyncio.Event()
