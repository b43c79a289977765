"""Seeds for the environments and the policy of an actor."""

import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mycelia.run.v1 import run_pb2
from mycelia_core.seeds import seed_int, seed_sequence


@dataclass(frozen=True)
class ActorSeeds:
    """What all randomness of one actor is derived from.

    In a fresh run it follows from the run's seed and the actor's index, so that
    the same run plays the same openings again. An actor that joins when training
    has begun stands in for a lost one, perhaps with the same index: it also
    mixes in its instance id, so that it does not replay what the table has. A
    resumed run mixes in the env steps it had behind it.
    """

    run_seed: int
    actor_index: int
    initial_env_steps: int = 0
    replacement: int = 0
    """0 for an actor of the run's start, otherwise drawn from its instance id."""

    def environments(self, count: int) -> Sequence[int]:
        """Returns a seed in `[0, 2^31)` for each of `count` environments."""
        return [
            seed_int(seed_sequence(self.run_seed, "environment", *self._key, slot))
            for slot in range(count)
        ]

    def policy(self) -> np.random.Generator:
        """Returns the generator that exploration is drawn from."""
        return np.random.default_rng(seed_sequence(self.run_seed, "exploration", *self._key))

    @property
    def _key(self) -> tuple[int, int, int]:
        return (self.actor_index, self.initial_env_steps, self.replacement)


def actor_seeds(run: run_pb2.Run, run_seed: int, actor_index: int, instance_id: str) -> ActorSeeds:
    """Returns the seeds of an actor that has just joined the run."""
    early = run.phase in (run_pb2.PHASE_STARTING, run_pb2.PHASE_COLLECTING)
    replacement = 0 if early else max(1, zlib.crc32(instance_id.encode()))
    return ActorSeeds(run_seed, actor_index, run.initial_env_steps, replacement)
