"""Seeds: every random generator of a run is a child of the run's one seed."""

import zlib

import numpy as np


def seed_sequence(run_seed: int, role: str, *indices: int) -> np.random.SeedSequence:
    """Returns the seed sequence of one part of a run, for example one environment.

    Different roles or indices give independent sequences, so that no two
    environments of any two actors share one, and a run's seed 1 has nothing in
    common with its seed 2.

    Args:
      run_seed: the run's seed, at least 0.
      role: what the generator is for, for example `actor`.
      indices: which one it is, for example the actor's index and the slot.
    """
    return np.random.SeedSequence(run_seed, spawn_key=(zlib.crc32(role.encode()), *indices))


def seed_int(sequence: np.random.SeedSequence) -> int:
    """Returns an integer in `[0, 2^31)` for libraries that take no more."""
    return int(sequence.generate_state(1, np.uint32)[0]) & 0x7FFF_FFFF
