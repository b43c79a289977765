"""Parts of versions that other servers keep: read and written side by side."""

from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future

from mycelia.experience.v1 import tensor_pb2
from mycelia.params.v1 import params_pb2 as pb
from mycelia.params.v1 import shards_pb2
from mycelia_core.clients.failures import translated_errors
from mycelia_core.clients.shard_channels import ShardChannels
from mycelia_core.parts import split
from mycelia_core.weights import Weights, WeightsReader, make_header


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
        placement: dict[str, str] = {}
        for address, other in self._others.items():
            part = other.result(self._timeout).tensors
            tensors |= part
            placement |= dict.fromkeys(part, address)
        return Weights(own.version, own.learner_step, tensors, own.publish_time, placement)


class WeightParts:
    """Talks to the shards of one run's weights. Any thread may use it."""

    def __init__(self, run_id: str) -> None:
        """Connects to nobody yet; headers say where parts are."""
        self._run_id = run_id
        self._shards = ShardChannels()

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
            shard.address: self.fetch(shard, timeout=timeout, keep=keep) for shard in header.shards
        }
        return VersionReader(header, others, timeout)

    def fetch(self, part: pb.ShardPart, *, timeout: float, keep: bool = False) -> "Future[Weights]":
        """Begins to read one part; the future raises what `VersionReader.finish` does."""
        return self._shards.submit(self._get, part, timeout, keep)

    def put(
        self, address: str, part_id: str, part: Weights, *, narrowed: bool, timeout: float
    ) -> "Future[None]":
        """Begins to put a part on a shard; the future raises what `GetPart` and `PutPart` do."""
        header = make_header(part)
        header.narrowed = narrowed
        return self._shards.submit(self._put, address, part_id, part, header, timeout)

    def close(self) -> None:
        """Ends what is under way, and closes all channels."""
        self._shards.close()

    def _get(self, shard: pb.ShardPart, timeout: float, keep: bool) -> Weights:
        request = shards_pb2.GetPartRequest(run_id=self._run_id, part_id=shard.part_id, keep=keep)
        reader: WeightsReader | None = None
        with translated_errors(f"GetPart at the shard {shard.address}"):
            for response in self._shards.stub(shard.address).GetPart(request, timeout=timeout):
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
            self._shards.stub(address).PutPart(requests(), timeout=timeout)
