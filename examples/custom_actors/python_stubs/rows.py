"""Rows: what they are made of, one environment that makes them, and how they are sent."""

import gymnasium
import numpy as np

from mycelia.experience.v1 import signature_pb2, tensor_pb2
from mycelia.replay.v1 import replay_pb2
from mycelia.run.v1 import run_pb2

BOOL, INT64, FLOAT32 = tensor_pb2.D_TYPE_BOOL, tensor_pb2.D_TYPE_INT64, tensor_pb2.D_TYPE_FLOAT32
DTYPES = {BOOL: np.dtype("?"), INT64: np.dtype("<i8"), FLOAT32: np.dtype("<f4")}
COLUMNS = [
    signature_pb2.ColumnSpec(name="observation", dtype=FLOAT32, shape=[4]),
    signature_pb2.ColumnSpec(name="action", dtype=INT64, category_count=2),
    signature_pb2.ColumnSpec(name="policy_version", dtype=INT64),
    signature_pb2.ColumnSpec(name="reward", dtype=FLOAT32),
    *(signature_pb2.ColumnSpec(name=n, dtype=BOOL) for n in ("first", "terminated", "truncated")),
]


class Slot:
    """One environment: a stream of rows, numbered from 0."""

    def __init__(self, stream_id):
        self.env = gymnasium.make("CartPole-v1")
        self.stream_id, self.next_row, self.rows = stream_id, 0, []
        self.reset()

    def reset(self):
        self.observation, self.first, self.total, self.length = self.env.reset()[0], True, 0.0, 0

    def step(self, action, version, episodes):
        observation, reward, terminated, truncated, _ = self.env.step(action)
        self.add(version, action=action, reward=reward)
        self.observation, self.first = observation, False
        self.total, self.length = self.total + reward, self.length + 1
        if terminated or truncated:  # one more row, with the final observation
            self.add(version, terminated=terminated, truncated=truncated)
            episodes.append(run_pb2.Episode(episode_return=self.total, length=self.length))
            self.reset()

    def add(self, version, **values):
        row = {"action": 0, "reward": 0.0, "terminated": False, "truncated": False} | values
        row |= {"observation": self.observation, "first": self.first, "policy_version": version}
        self.rows.append(row)


def insert_request(run_id, table, sequence, slots):
    """Takes the rows of all streams; in every column they follow one another."""
    request = replay_pb2.InsertRequest(run_id=run_id, table=table, sequence=sequence)
    rows = [row for slot in slots for row in slot.rows]
    for column in COLUMNS:
        values = np.array([row[column.name] for row in rows], DTYPES[column.dtype])
        tensor = tensor_pb2.Tensor(dtype=column.dtype, shape=values.shape, data=values.tobytes())
        request.columns.append(replay_pb2.ColumnData(name=column.name, values=tensor))
    for slot in slots:
        request.segments.add(
            stream_id=slot.stream_id, start_row=slot.next_row, row_count=len(slot.rows)
        )
        slot.next_row, slot.rows = slot.next_row + len(slot.rows), []
    return request
