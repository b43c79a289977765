"""Arrays in memory that an actor and its worker process share."""

import mmap
import os
import tempfile
from collections.abc import Iterable, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from mycelia_actor.environments.spaces import SpaceColumns
from mycelia_actor.environments.vector import Observation, StepResult

_ALIGNMENT = 64

Field = tuple[str, tuple[int, ...], str]
"""Name, shape and dtype of one array."""


def open_memory(size: int) -> int:
    """Returns the descriptor of anonymous memory: it goes with the last process that has it.

    No name, so nothing is left in /dev/shm after a crash, and its small size in
    containers does not matter.
    """
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("mycelia-environments")
    else:
        with tempfile.TemporaryFile() as file:
            descriptor = os.dup(file.fileno())
    os.ftruncate(descriptor, size)
    return descriptor


class SharedArrays:
    """Named arrays that lie one after the other in shared memory."""

    def __init__(self, descriptor: int, fields: Sequence[Field]) -> None:
        """Maps the memory; both sides must give the same fields."""
        self._memory = mmap.mmap(descriptor, size_of(fields))
        self._arrays: dict[str, NDArray[Any]] = {}
        offset = 0
        for name, shape, dtype in fields:
            array = np.ndarray(shape, np.dtype(dtype), self._memory, offset)
            self._arrays[name] = array
            offset += _aligned(array.nbytes)

    def __getitem__(self, name: str) -> NDArray[Any]:
        """Returns the array of that name: writing to it is seen by the other side."""
        return self._arrays[name]


def size_of(fields: Iterable[Field]) -> int:
    """Returns how many bytes the fields need together."""
    sizes = (int(np.prod(shape)) * np.dtype(dtype).itemsize for _, shape, dtype in fields)
    return max(1, sum(map(_aligned, sizes)))


def _aligned(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT


class StepMemory:
    """What a worker process and its actor tell each other about a step of N environments.

    They take turns, so neither needs a lock: the actor writes the actions, the
    worker what came of them.
    """

    def __init__(self, descriptor: int, fields: Sequence[Field], count: int) -> None:
        """Maps the memory; `fields` are those of `step_fields` for N environments."""
        self._arrays = SharedArrays(descriptor, fields)
        self._count = count
        self._observation = [name[4:] for name, _, _ in fields if name.startswith("obs:")]
        self._action = [name[4:] for name, _, _ in fields if name.startswith("act:")]

    @property
    def seeds(self) -> NDArray[np.int64]:
        """[N] the seeds of the next reset."""
        return self._arrays["seeds"]

    @property
    def current_slot(self) -> NDArray[np.int64]:
        """[1] which environment is being stepped; -1 for none."""
        return self._arrays["current_slot"]

    def write_action(self, action: dict[str, NDArray[Any]]) -> None:
        """Writes actions `[N, ...]`."""
        for name in self._action:
            self._arrays["act:" + name][:] = action[name]

    def read_action(self) -> dict[str, NDArray[Any]]:
        """Returns views of the actions `[N, ...]`."""
        return {name: self._arrays["act:" + name] for name in self._action}

    def write_observation(self, observation: Observation) -> None:
        """Writes what the environments show."""
        for name in self._observation:
            self._arrays["obs:" + name][:] = observation.columns[name]
        self._arrays["first"][:] = observation.first
        self._arrays["ready"][:] = observation.ready

    def read_observation(self) -> Observation:
        """Returns a copy of what the environments show."""
        return Observation(
            {name: self._arrays["obs:" + name].copy() for name in self._observation},
            self._arrays["first"].copy(),
            self._arrays["ready"].copy(),
        )

    def write_result(self, result: StepResult) -> None:
        """Writes what a step gave."""
        arrays = self._arrays
        self.write_observation(result.observation)
        arrays["reward"][:] = result.reward
        arrays["terminated"][:] = result.terminated
        arrays["truncated"][:] = result.truncated
        arrays["stepped"][:] = True if result.stepped is None else result.stepped
        arrays["over"][:] = False
        arrays["failed"][:] = False
        if result.failed is not None:
            arrays["failed"][result.failed] = True
        if result.ended.size:
            for name in self._observation:
                arrays["end:" + name][result.ended] = result.final_observation[name]
            # In-process environments say which of the ended are over by giving their returns.
            over = result.ended if result.over is None else result.over
            arrays["over"][over] = True
            arrays["return"][over] = result.episode_returns
            arrays["length"][over] = result.episode_lengths

    def read_result(self) -> StepResult:
        """Returns a copy of what a step gave."""
        arrays = self._arrays
        terminated, truncated = arrays["terminated"].copy(), arrays["truncated"].copy()
        ended, over = np.flatnonzero(terminated | truncated), np.flatnonzero(arrays["over"])
        failed, stepped = np.flatnonzero(arrays["failed"]), arrays["stepped"].copy()
        return StepResult(
            observation=self.read_observation(),
            reward=arrays["reward"].copy(),
            terminated=terminated,
            truncated=truncated,
            step_count=int(np.count_nonzero(stepped)),
            ended=ended,
            final_observation={
                name: arrays["end:" + name][ended] for name in self._observation if ended.size
            },
            episode_returns=arrays["return"][over],
            episode_lengths=arrays["length"][over],
            stepped=stepped,
            failed=failed if failed.size else None,
            over=over,
        )

    @classmethod
    def make(cls, fields: Sequence[Field], count: int) -> tuple[Self, int]:
        """Makes new memory; returns it and its descriptor, which is the caller's."""
        descriptor = open_memory(size_of(fields))
        return cls(descriptor, fields, count), descriptor


def step_fields(observation: SpaceColumns, action: SpaceColumns, count: int) -> list[Field]:
    """Returns the arrays that N environments with these spaces need."""
    fields: list[Field] = []
    for prefix, columns in (("obs:", observation), ("end:", observation), ("act:", action)):
        fields += [
            (prefix + spec.name, (count, *spec.shape), spec.dtype.str) for spec in columns.specs
        ]
    flags = ("first", "ready", "terminated", "truncated", "stepped", "over", "failed")
    fields += [(name, (count,), "|b1") for name in flags]
    fields += [(name, (count,), "<f8") for name in ("reward", "return")]
    fields += [(name, (count,), "<i8") for name in ("seeds", "length")]
    return [*fields, ("current_slot", (1,), "<i8")]
