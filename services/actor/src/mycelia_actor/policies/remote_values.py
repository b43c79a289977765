"""Action values from the inference service, as long as it takes to get them."""

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mycelia_actor.environments.spaces import Columns
from mycelia_actor.policies.action_values import UnplayableError, count_actions
from mycelia_actor.policies.policy import Slots
from mycelia_core.clients.inference import Q_VALUES, InferenceStream, Inferred
from mycelia_core.clients.waiting import Backoff, StoppedError
from mycelia_core.rpc.errors import UnavailableError
from mycelia_core.specs import FIRST, OBSERVATION, Signature
from mycelia_core.weights import Weights

logger = logging.getLogger(__name__)

FIRST_REPORT_SECONDS = 1.0
"""How long a wait may be before it is logged: services start in any order."""

REPORT_SECONDS = 10.0
"""How often one that goes on is logged again."""


@dataclass(slots=True)
class RemoteFigures:
    """What asking has cost so far."""

    requests: int = 0
    total_seconds: float = 0.0
    """From asking to having the answer, waits for a service that is away included."""
    batch_wait_seconds: float = 0.0
    """Of those, how long requests waited for their batches to be closed."""
    compute_seconds: float = 0.0
    """And how long the batches were evaluated."""
    batch_rows: int = 0
    """Observations that were evaluated together, summed over requests."""
    sent_bytes: int = 0
    received_bytes: int = 0


class RemoteValues:
    """The values that the inference service gives. An `ActionValues` without weights of its own.

    When the service is away it waits, with back-off, and asks for its address again. A new
    service remembers nothing: stacks of frames begin anew, as with an episode.
    """

    def __init__(
        self,
        signature: Signature,
        count: int,
        *,
        run_id: str,
        locate: Callable[[], str | None],
        timeout_seconds: float,
        stop: threading.Event,
    ) -> None:
        """Prepares for N environments; opens the stream with the first observation.

        Args:
          signature: of the run's rows.
          count: N.
          run_id: the run.
          locate: returns the service's address, asked anew for each attempt; None for none.
          timeout_seconds: how long an answer may take before the service counts as lost.
          stop: ends waits.

        Raises:
          UnplayableError: the action is not one choice out of n.
        """
        self.action_count = count_actions(signature)
        self.version = 0
        self.figures = RemoteFigures()
        self._names = [spec.name for spec in signature.starting_with(OBSERVATION)]
        self._count = count
        self._run_id = run_id
        self._locate = locate
        self._timeout_seconds = timeout_seconds
        self._stop = stop
        self._stream: InferenceStream | None = None

    def use(self, weights: Weights) -> None:
        """Changes nothing: the service has weights of its own."""

    def see(self, observation: Columns, slots: Slots) -> NDArray[np.float32] | None:
        """Returns `[n, A]` values of what environments `slots` show now; None without weights.

        Raises:
          StoppedError: `stop` was set while it waited.
          StatusError: the service refused what it was sent.
        """
        return self._values(observation, slots, observation[FIRST])

    def look_ahead(self, observation: Columns, slots: Slots) -> NDArray[np.float32] | None:
        """Returns `[E, A]` values of what comes after what `slots` showed last; as `see`."""
        return self._values(observation, slots, None)

    def close(self) -> None:
        """Ends the stream, which frees its slots."""
        if self._stream:
            self._stream.close()
            self._stream = None

    def _values(
        self, observation: Columns, slots: Slots, first: NDArray[np.bool_] | None
    ) -> NDArray[np.float32] | None:
        start = time.monotonic()
        shown = {name: observation[name] for name in self._names}
        inferred = self._infer(shown, slots, first)
        self._add_up(inferred, time.monotonic() - start)
        self.version = inferred.policy_version
        if not inferred.policy_version:
            return None
        values = inferred.outputs.get(Q_VALUES)
        if values is None or values.shape != (len(slots), self.action_count):
            got = {name: list(value.shape) for name, value in inferred.outputs.items()}
            raise UnplayableError(
                f"the inference service gave {got}, expected {Q_VALUES} "
                f"[{len(slots)}, {self.action_count}]"
            )
        return values

    def _add_up(self, inferred: Inferred, seconds: float) -> None:
        figures = self.figures
        figures.requests += 1
        figures.total_seconds += seconds
        figures.batch_wait_seconds += inferred.wait_seconds
        figures.compute_seconds += inferred.compute_seconds
        figures.batch_rows += inferred.batch_row_count
        figures.sent_bytes += inferred.sent_bytes
        figures.received_bytes += inferred.received_bytes

    def _infer(self, shown: Columns, slots: Slots, first: NDArray[np.bool_] | None) -> Inferred:
        backoff = Backoff()
        lost_time = time.monotonic()
        next_report = lost_time + FIRST_REPORT_SECONDS
        while not self._stop.is_set():
            try:
                return self._open().evaluate(shown, slots, first, timeout=self._timeout_seconds)
            except (UnavailableError, TimeoutError) as error:
                reason = error
            self.close()
            if (now := time.monotonic()) >= next_report:
                logger.warning(
                    "no inference service for %.0f s, waiting on: %s", now - lost_time, reason
                )
                next_report = now + REPORT_SECONDS
            self._stop.wait(backoff.next_seconds())
        raise StoppedError("stopped while waiting for the inference service")

    def _open(self) -> InferenceStream:
        if self._stream is None:
            address = self._locate()
            if address is None:
                raise UnavailableError("the run has no inference service yet")
            self._stream = InferenceStream(address, self._run_id, self._count, self._stop)
        return self._stream
