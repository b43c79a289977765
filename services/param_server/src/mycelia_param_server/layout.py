"""Where each tensor of the weights lies in the flat vector that gradients are applied to."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from mycelia.experience.v1 import tensor_pb2
from mycelia_core.codec import dtype_from_proto, expected_bytes
from mycelia_core.rpc.errors import InvalidArgumentError
from mycelia_core.weights import STATISTICS

STATISTIC_PARTS = ("count", "mean", "m2")
"""What a running statistic is made of, each a tensor of its own."""


@dataclass(frozen=True, slots=True)
class Slot:
    """A tensor's place in the vector, in elements."""

    start: int
    size: int
    shape: tuple[int, ...]


class Layout:
    """The trained tensors end to end, and the running statistics beside them. Immutable."""

    def __init__(
        self, trained: Mapping[str, Slot], statistics: Mapping[str, tuple[int, ...]]
    ) -> None:
        """Takes the places of trained tensors, and the shapes of statistics."""
        self.trained = trained
        """By name, in the order of the weights."""
        self.statistics = statistics
        """Shapes by full name."""
        self.size = sum(slot.size for slot in trained.values())
        """P, how many trained weights there are."""

    @classmethod
    def of(cls, specs: Iterable[tensor_pb2.TensorSpec]) -> Self:
        """Lays out published weights.

        Raises:
          InvalidArgumentError: a tensor is not float32 and no statistic either, a statistic
            is not float64 or lacks a part, or nothing is left to train.
        """
        trained: dict[str, Slot] = {}
        statistics: dict[str, tuple[int, ...]] = {}
        start = 0
        for spec in specs:
            dtype, shape = dtype_from_proto(spec.dtype, spec.name), tuple(spec.shape)
            if spec.name.startswith(STATISTICS):
                _check_dtype(spec.name, dtype, np.float64)
                statistics[spec.name] = shape
                continue
            _check_dtype(spec.name, dtype, np.float32)
            size = expected_bytes(dtype, shape, spec.name) // dtype.itemsize
            trained[spec.name] = Slot(start, size, shape)
            start += size
        if not start:
            raise InvalidArgumentError("header.tensors: none of float32, nothing to train")
        check_statistics(statistics)
        return cls(trained, statistics)

    def split(self, values: NDArray[Any]) -> dict[str, NDArray[Any]]:
        """Cuts a vector [P] into named views."""
        return {
            name: values[slot.start : slot.start + slot.size].reshape(slot.shape)
            for name, slot in self.trained.items()
        }

    def join(self, tensors: Mapping[str, NDArray[Any]]) -> NDArray[np.float32]:
        """Copies the trained tensors into one vector [P]."""
        values = np.empty(self.size, np.float32)
        for name, view in self.split(values).items():
            view[...] = tensors[name]
        return values

    def find(self, values: NDArray[Any]) -> str:
        """Names the first tensor that has a NaN or an infinity in a vector [P]."""
        for name, view in self.split(values).items():
            if not np.isfinite(view).all():
                return name
        return ""


def check_statistics(names: Iterable[str]) -> None:
    """Refuses statistics that lack a part; raises `InvalidArgumentError`."""
    have = set(names)
    for name in have:
        stem, _, part = name.rpartition("/")
        if part not in STATISTIC_PARTS:
            raise InvalidArgumentError(
                f"{name}: expected a name that ends with one of {', '.join(STATISTIC_PARTS)}"
            )
        for other in STATISTIC_PARTS:
            if f"{stem}/{other}" not in have:
                raise InvalidArgumentError(f"{stem}/{other}: missing, {name} is there")


def _check_dtype(name: str, got: np.dtype[Any], expected: type[np.floating[Any]]) -> None:
    if got != expected:
        raise InvalidArgumentError(
            f"{name}: got {got}, expected {np.dtype(expected)} in a run whose parameter "
            f"server applies gradients"
        )
