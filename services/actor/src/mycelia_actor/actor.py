"""An actor's life: join the run, act until it ends, leave."""

import logging
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack

import numpy as np

from mycelia.run.v1 import run_pb2
from mycelia_actor.environment_seeds import actor_seeds
from mycelia_actor.environments.backend import make_environments
from mycelia_actor.environments.group import Group
from mycelia_actor.environments.grouping import count_groups
from mycelia_actor.environments.joined_groups import JoinedGroups
from mycelia_actor.environments.spaces import signature_of
from mycelia_actor.environments.vector import VectorEnvironment
from mycelia_actor.grouped_loop import GroupedLoop
from mycelia_actor.joining import WAIT_SECONDS, joined
from mycelia_actor.loop import ActingLoop, Reporter
from mycelia_actor.n_step_priorities import NStepPriorities
from mycelia_actor.patient_writer import ATTEMPT_SECONDS, PatientWriter
from mycelia_actor.policies.action_values import ActionValues, make_action_values
from mycelia_actor.policies.device import find_device
from mycelia_actor.policies.epsilon import actor_epsilons
from mycelia_actor.policies.epsilon_greedy import EpsilonGreedy
from mycelia_actor.policies.policy import Policy
from mycelia_actor.policies.remote_values import RemoteValues
from mycelia_actor.progress import Progress
from mycelia_actor.recorder import Recorder, RowSink
from mycelia_core.clients.inference import inference_locator
from mycelia_core.clients.params import ParamClient, WeightWatcher
from mycelia_core.clients.run import Membership, RunClient
from mycelia_core.clients.run_replay import open_run_replay
from mycelia_core.clients.sharded_replay import AnyReplayClient
from mycelia_core.clients.sharded_writer import AnyWriter
from mycelia_core.config import RunConfig
from mycelia_core.specs import Signature
from mycelia_core.weights import Weights

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
        run = client.wait_for_run(WAIT_SECONDS, stop)
        config = RunConfig.model_validate_json(run.config_json)
        environments = make_environments(
            config.env, config.actor.envs_per_actor, count_groups(config)
        )
        try:
            signature = signature_of(environments.observation, environments.action)
            with joined(client, run_pb2.ROLE_ACTOR, stop, signature) as membership:
                if config.topology != "replay":
                    _compute_gradients(membership, environments, stop)
                    return
                _act(client, membership, environments, stop)
        finally:
            environments.close()


def _compute_gradients(
    membership: Membership, environments: VectorEnvironment, stop: threading.Event
) -> None:
    # Only workers that differentiate need torch.
    from mycelia_actor.gradients.worker import work

    work(membership, environments, stop)


def _act(
    client: RunClient,
    membership: Membership,
    environments: VectorEnvironment,
    stop: threading.Event,
) -> None:
    config = membership.config
    signature = signature_of(environments.observation, environments.action)
    seeds = actor_seeds(membership.run, config.seed, membership.index, membership.instance_id)
    epsilon = actor_epsilons(config.actor, membership.index)
    logger.info(
        "actor %d acts in %d environments of %s",
        membership.index,
        environments.count,
        config.env.id,
    )
    with ExitStack() as stack:
        values, newest_weights = _make_values(client, membership, signature, stop, stack)
        policy = EpsilonGreedy(values, epsilon, seeds.policy())
        replay = open_run_replay(
            client, membership.run_id, config.replay, timeout=WAIT_SECONDS, stop=stop
        )
        stack.callback(replay.close)
        writer = _make_writer(replay, membership, signature)
        stack.enter_context(writer)
        progress = Progress(membership, lambda: writer.wait_seconds, float(np.mean(epsilon)))
        sink = PatientWriter(writer, progress.report, config.actor.insert_timeout_seconds, stop)
        recorders = make_recorders(config, environments, policy, sink)
        loop = make_loop(
            config,
            environments,
            policy,
            recorders,
            newest_weights=newest_weights,
            reporter=progress,
        )
        loop.run(seeds.environments(environments.count), stop)
        progress.report()
        for recorder in recorders:
            recorder.flush()
        writer.flush(FLUSH_SECONDS)


def _make_values(
    client: RunClient,
    membership: Membership,
    signature: Signature,
    stop: threading.Event,
    stack: ExitStack,
) -> tuple[ActionValues, Callable[[], Weights | None]]:
    """Returns what values actions, here or centrally, and where its weights come from."""
    config, count = membership.config, membership.config.actor.envs_per_actor
    if config.actor.inference == "central":
        remote = RemoteValues(
            signature,
            count,
            run_id=membership.run_id,
            locate=inference_locator(client, membership.run_id, membership.index),
            timeout_seconds=config.inference.timeout_seconds,
            stop=stop,
        )
        stack.callback(remote.close)
        return remote, lambda: None
    device = find_device(config.actor.device, "actor.device")
    values = make_action_values(signature, config, count, device)
    params = stack.enter_context(ParamClient(client.address, membership.run_id))
    watcher = WeightWatcher(params)
    stack.callback(watcher.stop)
    return values, lambda: watcher.latest


def make_recorders(
    config: RunConfig, environments: VectorEnvironment, policy: Policy, sink: RowSink
) -> list[Recorder]:
    """Returns a recorder for each group of environments, or one for all."""
    groups: Sequence[Group | None] = _groups(config, environments) or [None]
    return [
        Recorder(
            sink,
            policy,
            environments.action,
            make_priorities(config, group.count if group else environments.count),
            first_slot=group.first_slot if group else None,
            clip_rewards=config.env.clip_rewards,
            drops_failed=config.env.on_failure == "drop",
        )
        for group in groups
    ]


def make_loop(
    config: RunConfig,
    environments: VectorEnvironment,
    policy: Policy,
    recorders: Sequence[Recorder],
    *,
    newest_weights: Callable[[], Weights | None],
    reporter: Reporter,
) -> ActingLoop | GroupedLoop:
    """Returns the loop that acts in these environments, together or group by group."""
    groups = _groups(config, environments)
    if groups:
        return GroupedLoop(groups, policy, recorders, newest_weights, reporter)
    return ActingLoop(environments, policy, recorders[0], newest_weights, reporter)


def _groups(config: RunConfig, environments: VectorEnvironment) -> Sequence[Group]:
    """Returns the groups to act in one by one; none to act in all together."""
    if config.actor.groups != 1 and isinstance(environments, JoinedGroups):
        return environments.groups
    return []


def make_priorities(config: RunConfig, count: int) -> NStepPriorities | None:
    """Returns what computes initial priorities of `count` environments; None if nobody needs them.

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
        count,
        steps,
        config.algorithm["gamma"],
        config.algorithm.get("priority_epsilon", 0.0),
    )


def _make_writer(
    replay: AnyReplayClient, membership: Membership, signature: Signature
) -> AnyWriter:
    config = membership.config
    return replay.writer(
        config.replay.name,
        [f"{membership.instance_id}/{slot}" for slot in range(config.actor.envs_per_actor)],
        signature,
        chunk_rows=config.actor.chunk_rows,
        max_in_flight=config.actor.max_in_flight_requests,
        timeout_seconds=ATTEMPT_SECONDS,
    )
