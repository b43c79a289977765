"""An actor's life: join the run, act until it ends, leave."""

import logging
import threading
from contextlib import ExitStack

import numpy as np

from mycelia.run.v1 import run_pb2
from mycelia_actor.environment_seeds import actor_seeds
from mycelia_actor.environments.backend import make_environments
from mycelia_actor.environments.spaces import signature_of
from mycelia_actor.environments.vector import VectorEnvironment
from mycelia_actor.joining import WAIT_SECONDS, joined, wait_for_run
from mycelia_actor.loop import ActingLoop
from mycelia_actor.n_step_priorities import NStepPriorities
from mycelia_actor.patient_writer import ATTEMPT_SECONDS, PatientWriter
from mycelia_actor.policies.action_values import make_action_values
from mycelia_actor.policies.epsilon import actor_epsilons
from mycelia_actor.policies.epsilon_greedy import EpsilonGreedy
from mycelia_actor.progress import Progress
from mycelia_actor.recorder import Recorder
from mycelia_core.clients.params import ParamClient, WeightWatcher
from mycelia_core.clients.replay import ReplayClient
from mycelia_core.clients.run import Membership, RunClient
from mycelia_core.clients.trajectory_writer import TrajectoryWriter
from mycelia_core.config import RunConfig
from mycelia_core.specs import Signature

logger = logging.getLogger(__name__)

FLUSH_SECONDS = 0.5
"""How long the last rows may take when an actor stops."""


def run_actor(address: str, stop: threading.Event) -> None:
    """Acts in the run at `address` until it finishes or `stop` is set.

    Raises:
      RunFinishedError: the run had finished already.
      MembershipLostError: the membership ended before the run did.
      MakeEnvironmentError: the environment cannot be made.
      UnsupportedSpaceError: its spaces cannot be recorded.
      UnplayableError: the policy cannot act in it.
      StatusError: a server refused what the actor brought.
      TimeoutError: a service did not come in time.
      StoppedError: `stop` was set while it waited for one.
    """
    with RunClient(address) as client:
        run = wait_for_run(client, stop)
        config = RunConfig.model_validate_json(run.config_json)
        environments = make_environments(config.env, config.actor.envs_per_actor)
        try:
            signature = signature_of(environments.observation, environments.action)
            with joined(client, run_pb2.ROLE_ACTOR, stop, signature) as membership:
                replay = client.wait_for_member(run_pb2.ROLE_REPLAY, WAIT_SECONDS, stop)
                _act(client, membership, environments, replay.address, stop)
        finally:
            environments.close()


def _act(
    client: RunClient,
    membership: Membership,
    environments: VectorEnvironment,
    replay_address: str,
    stop: threading.Event,
) -> None:
    config = membership.config
    signature = signature_of(environments.observation, environments.action)
    seeds = actor_seeds(membership.run, config.seed, membership.index, membership.instance_id)
    epsilon = actor_epsilons(config.actor, membership.index)
    values = make_action_values(signature, config, environments.count)
    policy = EpsilonGreedy(values, epsilon, seeds.policy())
    logger.info(
        "actor %d acts in %d environments of %s",
        membership.index,
        environments.count,
        config.env.id,
    )
    with ExitStack() as stack:
        params = stack.enter_context(ParamClient(client.address, membership.run_id))
        replay = stack.enter_context(ReplayClient(replay_address, membership.run_id))
        watcher = WeightWatcher(params)
        stack.callback(watcher.stop)
        writer = stack.enter_context(_make_writer(replay, membership, signature))
        progress = Progress(membership, lambda: writer.wait_seconds, float(np.mean(epsilon)))
        sink = PatientWriter(writer, progress.report, config.actor.insert_timeout_seconds, stop)
        recorder = Recorder(sink, policy, environments.action, make_priorities(config))
        loop = ActingLoop(environments, policy, recorder, lambda: watcher.latest, progress)
        loop.run(seeds.environments(environments.count), stop)
        progress.report()
        recorder.flush()
        writer.flush(FLUSH_SECONDS)


def make_priorities(config: RunConfig) -> NStepPriorities | None:
    """Returns what computes initial priorities, or None if the table needs none.

    Raises:
      ValueError: the config lacks the algorithm's discount.
    """
    if config.replay.sampler != "prioritized":
        return None
    window = config.replay.window
    steps = window.bootstrap_rows if window else config.algorithm.get("n_step", 1)
    if (window and window.learn_rows != 1) or steps < 1:
        return None
    if "gamma" not in config.algorithm:
        raise ValueError("algorithm.gamma: the run's config lacks it; runs need a resolved config")
    return NStepPriorities(
        config.actor.envs_per_actor,
        steps,
        config.algorithm["gamma"],
        config.algorithm.get("priority_epsilon", 0.0),
    )


def _make_writer(
    replay: ReplayClient, membership: Membership, signature: Signature
) -> TrajectoryWriter:
    config = membership.config
    return replay.writer(
        config.replay.name,
        [f"{membership.instance_id}/{slot}" for slot in range(config.actor.envs_per_actor)],
        signature,
        chunk_rows=config.actor.chunk_rows,
        max_in_flight=config.actor.max_in_flight_requests,
        timeout_seconds=ATTEMPT_SECONDS,
    )
