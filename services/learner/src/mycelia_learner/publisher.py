"""Weights on their way to the parameter server, off the training loop."""

import logging
import threading
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from mycelia_core.clients.params import ParamClient
from mycelia_core.clients.run import RunClient
from mycelia_core.rpc.errors import AbortedError
from mycelia_core.weights import WireDtype
from mycelia_learner.background import LatestWins

KEPT_BYTES = 64 * 1024 * 1024
"""How much of what was published is kept, so that evaluated weights can be found again."""

KEPT_AT_LEAST = 2
PUBLISH_SECONDS = 10.0

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A policy's weights at one learner step. The arrays are not to be written to."""

    learner_step: int
    tensors: Mapping[str, NDArray[Any]]

    @property
    def size_bytes(self) -> int:
        """How much memory the tensors take."""
        return sum(tensor.nbytes for tensor in self.tensors.values())


class Publisher:
    """Publishes snapshots, one at a time, and keeps the last ones by version."""

    def __init__(
        self,
        client: ParamClient,
        run_client: RunClient,
        run_id: str,
        wire_dtype: WireDtype = "float32",
    ) -> None:
        """Goes on from the newest version that the server has.

        Raises:
          StatusError, TimeoutError: if the server does not answer.
        """
        self._client = client
        self._run_client = run_client
        self._run_id = run_id
        self._wire_dtype = wire_dtype
        self._kept: OrderedDict[int, Snapshot] = OrderedDict()
        self._lock = threading.Lock()
        self.version = self._ask_newest_version()
        """The newest version published, as far as is known; 0 if none."""
        self._background = LatestWins[Snapshot]("publish", self.publish)

    def put(self, snapshot: Snapshot) -> None:
        """Publishes soon, unless a newer snapshot comes first. Never waits."""
        self._background.put(snapshot)

    def publish(self, snapshot: Snapshot, *, timeout: float = PUBLISH_SECONDS) -> int:
        """Publishes now, and returns the version.

        Raises:
          StatusError, TimeoutError: if the server did not take the weights.
        """
        try:
            version = self._attempt(snapshot, timeout)
        except AbortedError:
            # An earlier call was taken in though its answer was lost, or the server is a new one.
            self.version = self._ask_newest_version()
            version = self._attempt(snapshot, timeout)
        self.version = version
        self._keep(version, snapshot)
        return version

    def find(self, version: int) -> Snapshot | None:
        """Finds what was published under a version, if it is still kept. Any thread."""
        with self._lock:
            return self._kept.get(version)

    def close(self, timeout: float) -> None:
        """Publishes what waits and ends the thread, in at most `timeout` seconds."""
        if not self._background.close(timeout):
            logger.warning("the last weights may not have been published")

    def _attempt(self, snapshot: Snapshot, timeout: float) -> int:
        return self._client.publish(
            snapshot.tensors,
            snapshot.learner_step,
            self.version,
            timeout=timeout,
            wire_dtype=self._wire_dtype,
        )

    def _ask_newest_version(self) -> int:
        return self._run_client.get_run(self._run_id).weight_version

    def _keep(self, version: int, snapshot: Snapshot) -> None:
        most = max(KEPT_AT_LEAST, KEPT_BYTES // max(1, snapshot.size_bytes))
        with self._lock:
            self._kept[version] = snapshot
            while len(self._kept) > most:
                self._kept.popitem(last=False)
