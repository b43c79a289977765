"""Gradients on their way to the parameter server, and what comes back."""

import logging
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from mycelia_algorithms.gradient_source import Gradient
from mycelia_core.clients.gradients import GradientClient, PushOutcome, PushResult
from mycelia_core.clients.params import ParamClient
from mycelia_core.clients.waiting import Backoff, StoppedError
from mycelia_core.rpc.errors import (
    InvalidArgumentError,
    NotFoundError,
    ResourceExhaustedError,
    UnavailableError,
)
from mycelia_core.weights import Weights

logger = logging.getLogger(__name__)

PATIENCE_SECONDS = 10.0
"""How long a push may take beyond a round's deadline before it is sent again."""


def is_applied(result: PushResult) -> bool:
    """Whether the gradient changed the weights."""
    return result.outcome in (PushOutcome.APPLIED, PushOutcome.DUPLICATE)


@dataclass(slots=True)
class PushCounts:
    """What became of a worker's gradients."""

    pushed: int = 0
    """How many were sent."""

    applied: int = 0
    """How many changed the weights."""

    dropped: int = 0
    """How many came too late or were too old."""

    refused: int = 0
    """How many were malformed or not finite."""

    wait_seconds: float = 0.0
    """How long the worker waited for answers in all."""

    reasons: set[str] = field(default_factory=set)
    """The kinds of refusals that have been logged."""


class Pusher:
    """Pushes gradients one after the other. One thread owns it.

    A server that is away is tried again under the same sequence number for as long as the worker
    lives, so that no gradient counts twice.
    """

    def __init__(
        self,
        gradients: GradientClient,
        params: ParamClient,
        *,
        worker_id: str,
        round_seconds: float,
        stop: threading.Event,
    ) -> None:
        """Pushes as `worker_id`.

        Args:
          gradients: where gradients go.
          params: where fresh weights are from after a refusal.
          worker_id: the worker's instance id.
          round_seconds: how long an answer may take because a round is open.
          stop: ends waits.
        """
        self._gradients = gradients
        self._params = params
        self._worker_id = worker_id
        self._timeout = round_seconds + PATIENCE_SECONDS
        self._stop = stop
        self._sequence = 0
        self.counts = PushCounts()
        """What became of them so far."""

    def push(
        self, gradient: Gradient, version: int, placement: Mapping[str, str]
    ) -> PushResult | None:
        """Pushes a gradient and returns the answer, with new weights.

        Args:
          gradient: what to push.
          version: of the weights that it was computed at.
          placement: which of several servers kept which tensor of them.

        Returns:
          None if fresh weights are to be fetched: the gradient was refused as malformed, or one
          of several servers is away.

        Raises:
          StoppedError: `stop` was set while it waited.
          FailedPreconditionError: the server holds another run.
        """
        self._sequence += 1
        self.counts.pushed += 1
        start = time.monotonic()
        try:
            result = self._send(gradient, version, placement)
        except (InvalidArgumentError, ResourceExhaustedError) as error:
            self._note_refusal(error)
            return None
        finally:
            self.counts.wait_seconds += time.monotonic() - start
        if result and is_applied(result):
            self.counts.applied += 1
        else:
            self.counts.dropped += 1
        return result

    def fresh_weights(self) -> Weights:
        """Fetches the newest weights, waiting for a server that is away.

        Raises:
          StoppedError: `stop` was set while it waited.
        """
        backoff = Backoff()
        while not self._stop.is_set():
            try:
                if weights := self._params.get():
                    return weights
            except (NotFoundError, UnavailableError, TimeoutError) as error:
                logger.debug("no weights yet: %s", error)
            self._stop.wait(backoff.next_seconds())
        raise StoppedError("stopped while waiting for weights")

    def _send(
        self, gradient: Gradient, version: int, placement: Mapping[str, str]
    ) -> PushResult | None:
        backoff = Backoff()
        tensors = {name: np.ascontiguousarray(array) for name, array in gradient.tensors.items()}
        while not self._stop.is_set():
            try:
                return self._gradients.push(
                    tensors,
                    version=version,
                    worker_id=self._worker_id,
                    sequence=self._sequence,
                    sample_count=gradient.sample_count,
                    statistics=gradient.statistics or None,
                    metrics=gradient.metrics,
                    placement=placement,
                    want_weights=True,
                    timeout=self._timeout,
                )
            except (UnavailableError, TimeoutError) as error:
                if placement:
                    # All of them go back to what was saved when one is lost.
                    logger.warning("a gradient was not taken, fetching weights: %s", error)
                    return None
                logger.warning("a gradient was not taken, sending it again: %s", error)
                self._stop.wait(backoff.next_seconds())
        raise StoppedError("stopped while pushing a gradient")

    def _note_refusal(self, error: InvalidArgumentError | ResourceExhaustedError) -> None:
        self.counts.refused += 1
        kind = str(error).partition(" got ")[0]
        if kind not in self.counts.reasons:
            self.counts.reasons.add(kind)
            logger.error("a gradient was refused, going on from fresh weights: %s", error)
