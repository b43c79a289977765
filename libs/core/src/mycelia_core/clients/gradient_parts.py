"""A gradient on its way to several servers: the parts first, the push last."""

import uuid
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future
from typing import Any

from numpy.typing import NDArray

from mycelia.params.v1 import params_pb2 as pb
from mycelia.params.v1 import shards_pb2
from mycelia_core.clients.failures import translated_errors
from mycelia_core.clients.shard_channels import ShardChannels
from mycelia_core.parts import split, tensor_spec


class GradientParts:
    """The parts of one push that go to shards. One thread owns it.

    The push itself is complete only when all of them have arrived, so none ever counts in part.
    """

    def __init__(
        self,
        shards: ShardChannels,
        header: pb.PushHeader,
        arrays: Mapping[str, NDArray[Any]],
        placement: Mapping[str, str],
        timeout: float,
    ) -> None:
        """Begins to send the parts, side by side.

        Args:
          shards: leads to them.
          header: of the push.
          arrays: the whole gradient, as it is to be sent.
          placement: the address of each tensor's shard; for those of the first server, none.
          timeout: seconds for each part.
        """
        groups: dict[str, dict[str, NDArray[Any]]] = {}
        for name, array in arrays.items():
            if name in placement:
                groups.setdefault(placement[name], {})[name] = array
        self._shards = shards
        self._header = header
        self._timeout = timeout
        self._part_id = uuid.uuid4().hex
        self._pending: dict[str, Future[None]] = {
            address: shards.submit(self._put, address, group) for address, group in groups.items()
        }

    def describe(self) -> list[pb.ShardPart]:
        """Returns what the push's header has to say of the parts."""
        return [pb.ShardPart(address=address, part_id=self._part_id) for address in self._pending]

    def held_back(
        self, requests: Iterable[pb.PushGradientsRequest]
    ) -> Iterator[pb.PushGradientsRequest]:
        """Yields the push's requests, the last one only when all parts have arrived.

        Raises:
          InvalidArgumentError: a shard refused its part; the text names the tensor.
          UnavailableError: a shard is away, or has other weights by now.
          TimeoutError: a part was not taken in time.
        """
        for request in requests:
            if request.last:
                for part in self._pending.values():
                    part.result()
            yield request

    def _put(self, address: str, group: Mapping[str, NDArray[Any]]) -> None:
        header = pb.PushHeader(
            run_id=self._header.run_id,
            worker_id=self._header.worker_id,
            sequence=self._header.sequence,
            sample_count=self._header.sample_count,
            tensors=[tensor_spec(name, array) for name, array in group.items()],
        )

        def requests() -> Iterator[shards_pb2.PutGradientRequest]:
            first = {"header": header, "part_id": self._part_id}
            for parts in split(group.values()):
                yield shards_pb2.PutGradientRequest(parts=parts, **first)  # type: ignore[arg-type]
                first = {}

        with translated_errors(f"PutGradient at the shard {address}"):
            self._shards.stub(address).PutGradient(requests(), timeout=self._timeout)
