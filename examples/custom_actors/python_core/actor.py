"""A custom actor on mycelia-core: `python actor.py HOST:PORT` plays CartPole in the run there."""

import contextlib
import signal
import sys
import threading
from dataclasses import dataclass

import gymnasium
import numpy as np

from mycelia.run.v1 import run_pb2
from mycelia_core import mlp
from mycelia_core.clients.params import ParamClient, WeightWatcher
from mycelia_core.clients.replay import ReplayClient, TrajectoryWriter
from mycelia_core.clients.run import Membership, RunClient, StoppedError
from mycelia_core.specs import ColumnSpec, Signature
from mycelia_core.weights import Weights

ENVIRONMENTS = 8
WAIT_SECONDS = 120.0
# Ape-X: every environment explores at its own rate, from 0.4 down to 0.4^8.
EPSILON = 0.4 ** (1 + 7 * np.arange(ENVIRONMENTS) / (ENVIRONMENTS - 1))

# `reward`, `first`, `terminated` and `truncated` are added: every row has them.
SIGNATURE = Signature.of(
    [
        ColumnSpec("observation", np.dtype(np.float32), (4,)),
        ColumnSpec("action", np.dtype(np.int64), (), category_count=2),
        ColumnSpec("policy_version", np.dtype(np.int64)),
    ]
)


@dataclass
class Slot:
    """One environment: a stream of rows."""

    env: gymnasium.Env
    observation: np.ndarray
    first: bool = True
    episode_return: float = 0.0
    length: int = 0


def main(address: str) -> None:
    """Takes part in the run at `address` until it finishes."""
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    # The membership sends heartbeats from a thread of its own.
    with (
        RunClient(address) as registry,
        registry.join(run_pb2.ROLE_ACTOR, signature=SIGNATURE, stop=stop) as member,
    ):
        threading.Thread(target=follow, args=(member.finished, stop), daemon=True).start()
        replay = registry.wait_for_member(run_pb2.ROLE_REPLAY, WAIT_SECONDS, stop)
        with (
            ParamClient(address, member.run_id) as params,
            ReplayClient(replay.address, member.run_id) as client,
            contextlib.suppress(StoppedError),  # the run ended while the writer waited
        ):
            play(member, params, client, stop)


def follow(finished: threading.Event, stop: threading.Event) -> None:
    """Stops the actor when its run has finished."""
    finished.wait()
    stop.set()


def play(
    member: Membership, params: ParamClient, client: ReplayClient, stop: threading.Event
) -> None:
    """Steps all environments together and writes what they saw."""
    rng = np.random.default_rng()
    slots = [make_slot(member.config.env.id, seed) for seed in range(ENVIRONMENTS)]
    # A stream's rows are numbered from 0, so its name must be new with every start.
    streams = [f"{member.instance_id}/{index}" for index in range(ENVIRONMENTS)]
    watcher = WeightWatcher(params)
    env_steps = 0
    table = member.config.replay.name
    with client.writer(table, streams, SIGNATURE, chunk_rows=8, stop=stop) as writer:
        while not stop.is_set():
            weights = watcher.latest
            actions = choose(np.stack([slot.observation for slot in slots]), weights, rng)
            step(slots, actions, weights.version if weights else 0, writer, member)
            env_steps += ENVIRONMENTS
            member.set_counters(
                {
                    "env_steps": env_steps,
                    "policy_version": weights.version if weights else 0,
                    "insert_wait_seconds": writer.wait_seconds,
                }
            )
        watcher.stop()


def choose(
    observation: np.ndarray, weights: Weights | None, rng: np.random.Generator
) -> np.ndarray:
    """Returns epsilon-greedy actions, [N] int64; random ones before there are weights."""
    actions = rng.integers(2, size=ENVIRONMENTS)
    if weights is not None:
        greedy = mlp.q_values(weights.tensors, observation).argmax(axis=1)
        actions = np.where(rng.random(ENVIRONMENTS) < EPSILON, actions, greedy)
    return actions


def step(
    slots: list[Slot],
    actions: np.ndarray,
    version: int,
    writer: TrajectoryWriter,
    member: Membership,
) -> None:
    """Steps every environment; an episode's end is one more row, with the final observation."""
    for index, (slot, action) in enumerate(zip(slots, actions, strict=True)):
        observation, reward, terminated, truncated, _ = slot.env.step(int(action))
        write(writer, index, slot, version, action=action, reward=reward)
        slot.observation, slot.first = observation, False
        slot.episode_return += reward
        slot.length += 1
        if terminated or truncated:
            write(writer, index, slot, version, terminated=terminated, truncated=truncated)
            member.add_episode(slot.episode_return, slot.length)
            slots[index] = Slot(slot.env, slot.env.reset()[0])


def write(writer: TrajectoryWriter, index: int, slot: Slot, version: int, **values: float) -> None:
    """Writes one row of one stream. The writer sends rows in chunks, and waits if it must."""
    row = {"action": 0, "reward": 0.0, "terminated": False, "truncated": False} | values
    row |= {"observation": slot.observation, "first": slot.first, "policy_version": version}
    columns = {c.name: np.asarray([row[c.name]], c.dtype) for c in SIGNATURE.columns}
    writer.append(columns, streams=np.array([index]))


def make_slot(env_id: str, seed: int) -> Slot:
    """Makes one environment and begins its first episode."""
    env = gymnasium.make(env_id)
    return Slot(env, env.reset(seed=seed)[0])


if __name__ == "__main__":
    main(sys.argv[1])
