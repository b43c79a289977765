"""Parts of versions that other servers keep: read and written side by side."""

import threading
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor

import grpc

from mycelia.experience.v1 import tensor_pb2
from mycelia.params.v1 import params_pb2 as pb
from mycelia.params.v1 import shards_pb2, shards_pb2_grpc
from mycelia_core.clients.failures import translated_errors
from mycelia_core.parts import split
from mycelia_core.rpc.channel import open_channel
from mycelia_core.weights import Weights, WeightsReader, make_header

MAX_THREADS = 16
"""How many shards are read from at once; there are rarely more."""


class VersionReader:
    """Puts one version together: what its own server sends, and the parts of all others.

    One thread owns it; the other parts come meanwhile.
    """

    def __init__(
        self, header: pb.WeightsHeader, others: Mapping[str, "Future[Weights]"], timeout: float
    ) -> None:
        """Takes the header, and the other parts by the address that each comes from.

        Raises:
          InvalidArgumentError: the header is malformed.
        """
        self._reader = WeightsReader(header)
        self._others = others
        self._timeout = timeout

    def add(self, parts: Iterable[tensor_pb2.TensorPart]) -> None:
        """Takes in parts; raises `InvalidArgumentError` if they do not fit the header."""
        self._reader.add(parts)

    def finish(self) -> Weights:
        """Returns the weights, all of them of this version.

        Raises:
          NotFoundError: a shard no longer keeps its part, since there are newer versions.
          UnavailableError: a shard cannot be reached; the text names it.
          TimeoutError: a part did not come in time.
          InvalidArgumentError: bytes are missing, or a checksum is wrong.
        """
        own = self._reader.finish()
        if not self._others:
            return own
        tensors = dict(own.tensors)
        for other in self._others.values():
            tensors |= other.result(self._timeout).tensors
        return Weights(own.version, own.learner_step, tensors, own.publish_time)


class WeightParts:
    """Talks to the shards of one run's weights. Any thread may use it."""

    def __init__(self, run_id: str) -> None:
        """Connects to nobody yet; headers say where parts are."""
        self._run_id = run_id
        self._lock = threading.Lock()
        self._channels: dict[str, grpc.Channel] = {}
        self._threads: ThreadPoolExecutor | None = None

    def reader(
        self, header: pb.WeightsHeader, *, timeout: float, keep: bool = False
    ) -> VersionReader:
        """Begins to read all parts that a header names, and returns what puts them together.

        Args:
          header: the version's.
          timeout: seconds for each part.
          keep: whether shards are to keep the version for longer.

        Raises:
          InvalidArgumentError: the header is malformed.
        """
        others = {
            shard.address: self._executor().submit(self._get, shard, timeout, keep)
            for shard in header.shards
        }
        return VersionReader(header, others, timeout)

    def put(
        self, address: str, part_id: str, part: Weights, *, narrowed: bool, timeout: float
    ) -> "Future[None]":
        """Begins to put a part on a shard; the future raises what `GetPart` and `PutPart` do."""
        header = make_header(part)
        header.narrowed = narrowed
        return self._executor().submit(self._put, address, part_id, part, header, timeout)

    def close(self) -> None:
        """Ends what is under way, and closes all channels."""
        with self._lock:
            channels, self._channels = list(self._channels.values()), {}
            threads, self._threads = self._threads, None
        for channel in channels:
            channel.close()
        if threads:
            threads.shutdown(wait=False, cancel_futures=True)

    def _get(self, shard: pb.ShardPart, timeout: float, keep: bool) -> Weights:
        request = shards_pb2.GetPartRequest(run_id=self._run_id, part_id=shard.part_id, keep=keep)
        reader: WeightsReader | None = None
        with translated_errors(f"GetPart at the shard {shard.address}"):
            for response in self._stub(shard.address).GetPart(request, timeout=timeout):
                reader = reader or WeightsReader(response.header)
                reader.add(response.parts)
        return (reader or WeightsReader(pb.WeightsHeader())).finish()

    def _put(
        self, address: str, part_id: str, part: Weights, header: pb.WeightsHeader, timeout: float
    ) -> None:
        def requests() -> Iterator[shards_pb2.PutPartRequest]:
            first = {"run_id": self._run_id, "part_id": part_id, "header": header}
            for parts in split(part.tensors.values()):
                yield shards_pb2.PutPartRequest(parts=parts, **first)  # type: ignore[arg-type]
                first = {}

        with translated_errors(f"PutPart at the shard {address}"):
            self._stub(address).PutPart(requests(), timeout=timeout)

    def _stub(self, address: str) -> shards_pb2_grpc.ShardServiceStub:
        with self._lock:
            if address not in self._channels:
                self._channels[address] = open_channel(address)
            return shards_pb2_grpc.ShardServiceStub(self._channels[address])

    def _executor(self) -> ThreadPoolExecutor:
        with self._lock:
            if self._threads is None:
                self._threads = ThreadPoolExecutor(MAX_THREADS, thread_name_prefix="shard")
            return self._threads
