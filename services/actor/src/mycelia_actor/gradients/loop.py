"""The worker's loop: unroll, differentiate, push, take over what came of it."""

import threading
from collections.abc import Mapping
from typing import Protocol

from mycelia_actor.gradients.collector import RolloutCollector
from mycelia_actor.gradients.pusher import Pusher, is_applied
from mycelia_algorithms.gradient_source import Gradient, GradientSource
from mycelia_core.weights import Weights


class GradientReporter(Protocol):
    """Who is told of every gradient."""

    def add_gradient(self, gradient: Gradient) -> None:
        """Takes note of a gradient that was pushed."""


class GradientLoop:
    """Turns rollouts into gradients. One thread owns it."""

    def __init__(
        self,
        source: GradientSource,
        collector: RolloutCollector,
        pusher: Pusher,
        reporter: GradientReporter,
    ) -> None:
        """Connects the parts.

        Args:
          source: acts and differentiates.
          collector: lets it act.
          pusher: takes gradients to the server.
          reporter: is told of each.
        """
        self._source = source
        self._collector = collector
        self._pusher = pusher
        self._reporter = reporter
        self._version = 0
        self._placement: Mapping[str, str] = {}

    def run(self, weights: Weights, stop: threading.Event) -> None:
        """Works from these weights on until `stop` is set.

        Raises:
          StoppedError: it was set while a push was under way.
          StatusError: the server holds another run.
          ValueError: the weights do not fit the network.
        """
        self._load(weights)
        while not stop.is_set():
            rollout = self._collector.collect(self._version)
            for index in range(self._source.begin(rollout)):
                if stop.is_set() or not self._sub_step(index):
                    break

    def _sub_step(self, index: int) -> bool:
        """Computes and pushes one gradient; returns whether the rollout is good for another."""
        gradient = self._source.gradient(index)
        result = self._pusher.push(gradient, self._version, self._placement)
        self._reporter.add_gradient(gradient)
        if result is None or result.weights is None:
            self._load(self._pusher.fresh_weights())
            return False
        self._load(result.weights)
        # After a round that closed without this worker, the others are further than it is.
        return is_applied(result) and self._source.goes_on(result.metrics)

    def _load(self, weights: Weights) -> None:
        self._source.load(weights.tensors, weights.version)
        self._version, self._placement = weights.version, weights.placement
