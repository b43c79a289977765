"""What a table costs by itself: seconds by size, and memory by row."""

import multiprocessing
import statistics
import time
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np

from benchmarks.replay import workload
from benchmarks.replay.workload import CHUNK_ROWS, ENVS, EPISODE_ROWS, UPDATE_SIZE
from mycelia_core.compression import compress
from mycelia_core.specs import Codec
from mycelia_replay.rows import Rows, Segment
from mycelia_replay.table import Table

MEASURED_ROWS = 20_000


def scaling(sizes: list[int]) -> dict[str, float]:
    """Returns, for each number of items, the seconds of drawing and updating 512 of them."""
    return {str(size): _seconds(size) for size in sizes}


def memory_ratio(table: str, frames: Path) -> float:
    """Returns how much a process with a full table grows, over the bytes of the frames in it."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_measure_memory, args=(theirs, table, frames), daemon=True)
    process.start()
    ratio: float = ours.recv()
    process.join(timeout=10)
    return ratio


def _seconds(size: int) -> float:
    table = Table(
        workload.config("small", size), workload.signature("small"), np.random.SeedSequence(1)
    )
    columns = _columns("small", np.zeros((EPISODE_ROWS, 4), np.float32))
    for stream in range(-(-size // EPISODE_ROWS)):
        rows = Rows([Segment(f"s{stream}", 0, EPISODE_ROWS)], columns, None, EPISODE_ROWS)
        table.insert(rows)
    priorities = np.random.default_rng(0).random(UPDATE_SIZE)
    seconds = []
    for _ in range(200):
        start = time.perf_counter()
        sampled = table.sample(UPDATE_SIZE)
        table.update_priorities(sampled.item_keys, priorities)
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds)


def _measure_memory(pipe: Connection, name: str, frames: Path) -> None:
    signature = workload.signature(name)
    observations = workload.observations(name, workload.atari_frames(frames))
    config = workload.config(name, MEASURED_ROWS)
    # A first, small table: what is loaded and made once should not count.
    _fill(
        Table(workload.config(name, 500), signature, np.random.SeedSequence(1)), observations, 500
    )
    before = _resident_bytes()
    table = Table(config, signature, np.random.SeedSequence(1))
    _fill(table, observations, MEASURED_ROWS)
    grown = _resident_bytes() - before
    pipe.send(grown / (table.row_count * signature["observation"].row_bytes))


def _fill(table: Table, observations: np.ndarray, rows: int) -> None:
    spec = table.signature["observation"]
    for start in range(0, -(-rows // ENVS), CHUNK_ROWS):
        for env in range(ENVS):
            places = (start + np.arange(CHUNK_ROWS)) % len(observations)
            values = observations[places, env]
            columns = _columns(table.name, values, first=start == 0)
            if spec.codec is not Codec.RAW:
                columns["observation"] = compress(spec, values)
            segment = Segment(f"env{env}", start, CHUNK_ROWS)
            table.insert(Rows([segment], columns, None, CHUNK_ROWS))


def _columns(table: str, observation: np.ndarray, *, first: bool = True) -> dict[str, object]:
    count = len(observation)
    flags = np.zeros(count, np.bool_)
    begins = flags.copy()
    begins[0] = first
    return {
        "observation": observation,
        "action": np.zeros(count, np.int64),
        "reward": np.ones(count, np.float32),
        "first": begins,
        "terminated": flags,
        "truncated": flags,
    }


def _resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096
