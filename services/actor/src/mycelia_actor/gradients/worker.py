"""A worker's life inside a run: build the network, agree on first weights, push gradients."""

import logging
import threading
import time
from contextlib import ExitStack

import torch

from mycelia_actor.environment_seeds import actor_seeds
from mycelia_actor.environments.vector import VectorEnvironment
from mycelia_actor.gradients.collector import RolloutCollector
from mycelia_actor.gradients.loop import GradientLoop
from mycelia_actor.gradients.pusher import Pusher
from mycelia_actor.gradients.spaces import network_spec
from mycelia_actor.progress import Progress
from mycelia_algorithms.gradient_source import Gradient, GradientSource
from mycelia_algorithms.registry import load_gradient_source, parse_config
from mycelia_core.clients.gradients import GradientClient
from mycelia_core.clients.params import ParamClient
from mycelia_core.clients.run import Membership
from mycelia_core.rpc.errors import AbortedError
from mycelia_core.seeds import seed_int, seed_sequence
from mycelia_core.weights import Weights

logger = logging.getLogger(__name__)

REPORT_SECONDS = 0.2


def work(membership: Membership, environments: VectorEnvironment, stop: threading.Event) -> None:
    """Pushes gradients until `stop` is set.

    Raises:
      UnplayableError: the algorithm cannot act in these spaces.
      ValueError: algorithm, network and weights do not go together.
      StatusError: the server holds another run.
      StoppedError: `stop` was set while it waited.
    """
    config = membership.config
    torch.set_num_threads(1)
    source = build_source(membership, environments)
    seeds = actor_seeds(membership.run, config.seed, membership.index, membership.instance_id)
    address, run_id = membership.registry_address, membership.run_id
    wire_dtype = config.param_server.wire_dtype
    with ExitStack() as stack:
        params = stack.enter_context(ParamClient(address, run_id))
        pusher = Pusher(
            stack.enter_context(GradientClient(address, run_id, wire_dtype=wire_dtype, stop=stop)),
            params,
            worker_id=membership.instance_id,
            round_seconds=config.gradients.round_deadline_seconds,
            stop=stop,
        )
        progress = Progress(membership, lambda: pusher.counts.wait_seconds, 0.0)
        stack.callback(progress.report)
        collector = RolloutCollector(
            environments,
            source,
            seeds.environments(environments.count),
            progress,
            clip_rewards=config.env.clip_rewards,
        )
        loop = GradientLoop(source, collector, pusher, _Reporter(membership, pusher))
        logger.info("worker %d computes gradients of %s", membership.index, config.env.id)
        loop.run(first_weights(membership, params, pusher, source), stop)


def build_source(membership: Membership, environments: VectorEnvironment) -> GradientSource:
    """Builds what acts and differentiates, its network seeded as every other worker's is.

    Raises:
      UnplayableError, ValueError: config and environment do not go together.
    """
    config = membership.config
    algorithm = parse_config(config.algorithm)
    worker = seed_sequence(
        config.seed, "worker", membership.index, membership.run.initial_env_steps
    )
    return load_gradient_source(algorithm.name)(
        algorithm,
        network=network_spec(config.network, environments.observation, environments.action),
        seed=seed_int(seed_sequence(config.seed, "learner")),
        worker_seed=seed_int(worker),
    )


def first_weights(
    membership: Membership, params: ParamClient, pusher: Pusher, source: GradientSource
) -> Weights:
    """Returns the weights to begin with: the server's, or, if it has none, the seeded ones.

    All workers of a fresh run publish the same; the first one's stay. In a run that goes on from
    a checkpoint they wait for the learner to publish what it holds.

    Raises:
      StoppedError: the worker was stopped while it waited.
      StatusError: the server refused.
    """
    if not membership.run.initial_env_steps and params.get() is None:
        try:
            params.publish(source.initial_weights(), 0, expected_version=0)
        except AbortedError:
            logger.info("another worker was first to publish")
    return pusher.fresh_weights()


class _Reporter:
    """Tells the registry what became of gradients, a few times a second."""

    def __init__(self, membership: Membership, pusher: Pusher) -> None:
        self._membership = membership
        self._pusher = pusher
        self._next_time = 0.0

    def add_gradient(self, gradient: Gradient) -> None:
        now = time.monotonic()
        if now < self._next_time:
            return
        self._next_time = now + REPORT_SECONDS
        counts = self._pusher.counts
        self._membership.set_counters(
            {
                **gradient.metrics,
                "pushed_gradients": counts.pushed,
                "applied_gradients": counts.applied,
                "dropped_gradients": counts.dropped,
                "refused_gradients": counts.refused,
                "push_wait_seconds": counts.wait_seconds,
            }
        )
