"""What both sides do: rows, windows, batches and tables. The peer's script repeats it."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mycelia_core.config import TableConfig, WindowConfig
from mycelia_core.specs import Codec, ColumnSpec, Signature

ENVS = 16
CHUNK_ROWS = 16
EPISODE_ROWS = 201
BATCH_SIZE = 256
UPDATE_SIZE = 512
KEY_BATCHES = 16
"""How many different batches of keys are updated in turn."""
RUN_ID = "benchmark"
FRAME = (84, 84)
STEPS = 256
"""How many different steps of observations there are; they come over and over."""

Columns = dict[str, NDArray[Any]]


def signature(table: str) -> Signature:
    """Returns the columns of a table: `small`, `frames` or `atari`."""
    observation = {
        "small": ColumnSpec("observation", np.dtype(np.float32), (4,)),
        "frames": ColumnSpec("observation", np.dtype(np.uint8), FRAME),
        "atari": ColumnSpec("observation", np.dtype(np.uint8), FRAME, codec=Codec.LZ4),
    }[table]
    return Signature.of([observation, ColumnSpec("action", np.dtype(np.int64), (), 2)])


def config(table: str, capacity_rows: int | None = None) -> TableConfig:
    """Returns a table's settings: windows of 2 small rows, of 5 frames."""
    window = WindowConfig(bootstrap_rows=1 if table == "small" else 4)
    rows = capacity_rows or (200_000 if table == "small" else 20_000)
    return TableConfig(name=table, capacity_rows=rows, window=window)


def observations(table: str, atari: NDArray[np.uint8]) -> NDArray[Any]:
    """Returns observations `[STEPS, ENVS, ...]`."""
    generator = np.random.default_rng(0)
    if table == "small":
        return generator.normal(size=(STEPS, ENVS, 4)).astype(np.float32)
    return (
        atari if table == "atari" else generator.integers(0, 256, (STEPS, ENVS, *FRAME), np.uint8)
    )


def step(observation: NDArray[Any], place: int) -> Columns:
    """Returns one row for each environment, at a place in their episodes."""
    count = len(observation)
    return {
        "observation": observation,
        "action": np.full(count, place % 2),
        "reward": np.ones(count, np.float32),
        "first": np.full(count, place == 0),
        "terminated": np.full(count, place == EPISODE_ROWS - 1),
        "truncated": np.zeros(count, np.bool_),
    }


def atari_frames(path: Path) -> NDArray[np.uint8]:
    """Returns frames `[STEPS, ENVS, 84, 84]` of Pong played at random, kept in a file."""
    if not path.exists():
        from ale_py.vector_env import AtariVectorEnv

        env = AtariVectorEnv("pong", num_envs=ENVS, stack_num=1, frameskip=4, noop_max=30)
        env.reset(seed=1)
        generator = np.random.default_rng(1)
        frames = []
        for _ in range(100 + STEPS):
            played = env.step(generator.integers(0, env.single_action_space.n, ENVS))
            frames.append(np.array(played[0])[:, 0])
        np.save(path, np.stack(frames[-STEPS:]))
    loaded: NDArray[np.uint8] = np.load(path)
    return loaded


def repeat(
    action: Callable[[], int], seconds: float, finish: Callable[[], None] = lambda: None
) -> float:
    """Returns how much is done per second, what `finish` waits for included."""
    start = time.perf_counter()
    done = 0
    while time.perf_counter() - start < seconds:
        done += action()
    finish()
    return done / (time.perf_counter() - start)
