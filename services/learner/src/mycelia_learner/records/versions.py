"""Versions of the weights, as the parameter server makes them."""

import logging
import threading
from collections import OrderedDict

from mycelia_core.clients.params import ParamClient
from mycelia_core.rpc.errors import NotFoundError, StatusError
from mycelia_learner.publisher import KEPT_AT_LEAST, KEPT_BYTES, Snapshot

CALL_SECONDS = 10.0

logger = logging.getLogger(__name__)


class Versions:
    """Fetches versions and keeps the last ones fetched. Any thread may use it."""

    def __init__(self, client: ParamClient) -> None:
        """Has fetched nothing yet."""
        self._client = client
        self._lock = threading.Lock()
        self._kept: OrderedDict[int, Snapshot] = OrderedDict()
        self.version = 0
        """The newest version fetched; 0 if none."""

    @property
    def newest(self) -> Snapshot | None:
        """The newest version fetched."""
        with self._lock:
            return self._kept.get(self.version)

    def refresh(self) -> Snapshot | None:
        """Fetches the newest version and returns it; None if there is none newer, or no server."""
        try:
            weights = self._client.get(self.version, timeout=CALL_SECONDS)
        except (StatusError, TimeoutError) as error:
            logger.debug("no weights: %s", error)
            return None
        if weights is None:
            return None
        snapshot = Snapshot(weights.learner_step, weights.tensors)
        self._keep(weights.version, snapshot)
        return snapshot

    def find(self, version: int) -> Snapshot | None:
        """Finds a version that was evaluated: kept here, or still with the server."""
        with self._lock:
            kept = self._kept.get(version)
        if kept is not None:
            return kept
        try:
            weights = self._client.get(version=version, timeout=CALL_SECONDS)
        except NotFoundError:
            return None
        except (StatusError, TimeoutError) as error:
            logger.warning("version %d could not be fetched: %s", version, error)
            return None
        return Snapshot(weights.learner_step, weights.tensors) if weights else None

    def _keep(self, version: int, snapshot: Snapshot) -> None:
        most = max(KEPT_AT_LEAST, KEPT_BYTES // max(1, snapshot.size_bytes))
        with self._lock:
            self._kept[version] = snapshot
            self.version = max(self.version, version)
            while len(self._kept) > most:
                self._kept.popitem(last=False)
