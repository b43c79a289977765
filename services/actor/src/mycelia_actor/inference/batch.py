"""A request as the batcher sees it, and several of them evaluated together."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from mycelia_actor.environments.spaces import Columns
from mycelia_actor.environments.vector import join
from mycelia_actor.inference.network import SlotNetwork
from mycelia_actor.inference.slots import Lease
from mycelia_core.specs import FIRST


@dataclass(frozen=True, slots=True)
class Answer:
    """What a batch gave for one request."""

    outputs: Columns
    """`[n, ...]`; nothing without weights."""

    policy_version: int
    batch_row_count: int
    wait_seconds: float
    compute_seconds: float


@dataclass(frozen=True, slots=True, eq=False)
class Job:
    """One request."""

    lease: Lease

    rows: NDArray[np.int64]
    """[n] which of the lease's slots, all different."""

    observation: Columns
    """`[n, ...]`, and `first` `[n]` beside it unless it only looks ahead."""

    looks_ahead: bool

    done: Callable[[Answer | Exception], None]
    """Called once, by the thread that evaluates."""

    arrival_time: float = field(default_factory=time.monotonic)

    @property
    def slots(self) -> NDArray[np.int64]:
        """[n] in the network's memory."""
        return self.lease.slots[self.rows]


def evaluate(network: SlotNetwork, jobs: Sequence[Job]) -> list[Columns]:
    """Returns each job's outputs. No slot comes twice; a job that looks ahead changes nothing."""
    outputs: dict[Job, Columns] = {}
    for looks_ahead in (False, True):
        kind = [job for job in jobs if job.looks_ahead == looks_ahead]
        if not kind:
            continue
        columns = join([job.observation for job in kind])
        slots = np.concatenate([job.slots for job in kind])
        fresh = np.concatenate([job.lease.fresh[job.rows] for job in kind])
        if looks_ahead:
            _prime(network, columns, slots, fresh)
            together = network.look_ahead(columns, slots)
        else:
            # Whoever held a slot before must not be remembered.
            columns[FIRST] = columns[FIRST] | fresh
            together = network.see(columns, slots)
            for job in kind:
                job.lease.fresh[job.rows] = False
        starts = np.cumsum([0, *(len(job.rows) for job in kind)]).tolist()
        for job, start in zip(kind, starts, strict=False):
            rows = slice(start, start + len(job.rows))
            outputs[job] = {name: column[rows] for name, column in together.items()}
    return [outputs[job] for job in jobs]


def _prime(
    network: SlotNetwork,
    columns: Columns,
    slots: NDArray[np.int64],
    fresh: NDArray[np.bool_],
) -> None:
    """Lets slots of which nothing is known remember what they show now, and nobody else's."""
    if fresh.any():
        shown = {name: column[fresh] for name, column in columns.items()}
        network.see(shown | {FIRST: np.ones(int(fresh.sum()), np.bool_)}, slots[fresh])
