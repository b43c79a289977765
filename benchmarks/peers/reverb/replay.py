"""Reverb's side of the replay benchmark: one measurement for each line on stdin.

    echo '{"name": "insert_small", "seconds": 3}' | .venv/bin/python replay.py FRAMES.npy

The server runs in a process of its own, the client in this one. Prints a rate
for each line, in items (or updates) per second. Rows, windows, batches and the
way they are measured are those of `benchmarks/replay`.
"""

import itertools
import json
import multiprocessing
import os
import sys
import time
from collections.abc import Callable
from multiprocessing.connection import Connection

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import reverb

ENVS = 16
EPISODE_ROWS = 201
BATCH_SIZE = 256
UPDATE_SIZE = 512
KEY_BATCHES = 16
WINDOWS = {"small": 2, "frames": 5, "atari": 5}
CAPACITY = {"small": 200_000, "frames": 20_000, "atari": 20_000}
FRAME = ((84, 84), np.uint8)
SHAPES = {
    "small": ((4,), np.float32),
    "frames": ((84, 84), np.uint8),
    "atari": ((84, 84), np.uint8),
}


def main() -> None:
    """Answers until stdin ends."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=serve, args=(theirs,), daemon=True)
    process.start()
    side = Side(reverb.Client(f"localhost:{ours.recv()}"), np.load(sys.argv[1]))
    print("ready", flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        print(json.dumps(side.measure(request["name"], request["seconds"])), flush=True)
    ours.send("stop")
    process.join(timeout=10)


def serve(pipe: Connection) -> None:
    """Runs the server until a message comes; sends its port first."""
    tables = [
        reverb.Table(
            name=name,
            sampler=reverb.selectors.Prioritized(0.6),
            remover=reverb.selectors.Fifo(),
            max_size=CAPACITY[name],
            rate_limiter=reverb.rate_limiters.MinSize(1),
            signature=_signature(name),
        )
        for name in WINDOWS
    ]
    server = reverb.Server(tables)
    pipe.send(server.port)
    pipe.recv()
    server.stop()


class Side:
    """Measures against a server with three tables: small, frames and atari."""

    def __init__(self, client: reverb.Client, atari: np.ndarray) -> None:
        self._client = client
        noise = np.random.default_rng(0).integers(0, 256, (256, ENVS, 84, 84), np.uint8)
        small = np.random.default_rng(0).normal(size=(256, ENVS, 4)).astype(np.float32)
        self._observations = {"small": small, "frames": noise, "atari": atari}

    def measure(self, name: str, seconds: float) -> float:
        """Returns a rate; fills the table before it samples."""
        action, table, *rest = name.split("_")
        if action == "insert":
            return self._insert(table, 1 if rest else ENVS, seconds)
        if rest == ["atari"]:
            table = "atari"
        if action == "sample":
            self._fill(table)
            return self._sample(table, seconds)
        self._fill(table)
        return self._update(table, seconds)

    def _fill(self, table: str) -> None:
        least = 4_000
        if self._client.server_info()[table].current_size < least:
            while self._client.server_info()[table].current_size < least:
                self._insert(table, ENVS, 1.0)

    def _insert(self, table: str, env_count: int, seconds: float) -> float:
        window, observations = WINDOWS[table], self._observations[table]
        writers = [
            self._client.trajectory_writer(num_keep_alive_refs=window) for _ in range(env_count)
        ]
        count = 0

        def one_step() -> int:
            nonlocal count
            place = count % EPISODE_ROWS
            made = 0
            for env, writer in enumerate(writers):
                writer.append(_row(observations[count % len(observations), env], place))
                if place >= window - 1:
                    history = writer.history
                    writer.create_item(
                        table, 1.0, {name: column[-window:] for name, column in history.items()}
                    )
                    made += 1
                writer.flush(block_until_num_items=64)
                if place == EPISODE_ROWS - 1:
                    writer.end_episode(clear_buffers=True)
            count += 1
            return made

        def finish() -> None:
            for writer in writers:
                writer.flush()

        repeat(one_step, 0.3)
        rate = repeat(one_step, seconds, finish)
        for writer in writers:
            writer.close()
        return rate

    def _sample(self, table: str, seconds: float) -> float:
        dataset = reverb.TrajectoryDataset.from_table_signature(
            server_address=self._client.server_address,
            table=table,
            max_in_flight_samples_per_worker=2 * BATCH_SIZE,
        ).batch(BATCH_SIZE)
        batches = dataset.as_numpy_iterator()

        def one_batch() -> int:
            return len(next(batches).info.key)

        repeat(one_batch, 0.5)
        return repeat(one_batch, seconds)

    def _update(self, table: str, seconds: float) -> float:
        count = KEY_BATCHES * UPDATE_SIZE
        samples = self._client.sample(table, num_samples=count, emit_timesteps=False)
        # What a batch of the dataset holds: the learner has arrays, the client takes a dict.
        keys = np.array([sample.info.key for sample in samples], np.uint64)
        batches = itertools.cycle(keys.reshape(KEY_BATCHES, UPDATE_SIZE))
        priorities = np.linspace(0.5, 1.5, UPDATE_SIZE)

        def one_call() -> int:
            updates = dict(zip(next(batches).tolist(), priorities.tolist(), strict=True))
            self._client.mutate_priorities(table, updates=updates)
            return UPDATE_SIZE

        repeat(one_call, 0.3)
        return repeat(one_call, seconds)


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


def _row(observation: np.ndarray, place: int) -> dict[str, np.ndarray]:
    return {
        "observation": observation,
        "action": np.int64(place % 2),
        "reward": np.float32(1.0),
        "first": np.bool_(place == 0),
        "terminated": np.bool_(place == EPISODE_ROWS - 1),
        "truncated": np.bool_(False),
    }


def _signature(name: str) -> dict[str, object]:
    import tensorflow as tf

    window = WINDOWS[name]
    shape, dtype = SHAPES[name]
    spec = {"observation": tf.TensorSpec((window, *shape), dtype)}
    spec["action"] = tf.TensorSpec((window,), tf.int64)
    spec["reward"] = tf.TensorSpec((window,), tf.float32)
    for flag in ("first", "terminated", "truncated"):
        spec[flag] = tf.TensorSpec((window,), tf.bool)
    return spec


if __name__ == "__main__":
    main()
