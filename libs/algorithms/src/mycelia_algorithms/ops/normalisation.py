"""Running means and variances, merged from many sources without loss. numpy only, float64."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

STATISTICS = "statistics/"
"""How the names of tensors begin that are running statistics, not parameters."""

VARIANCE_EPSILON = 1e-8
"""Added to a variance before its root is taken."""


@dataclass(frozen=True, slots=True)
class Moments:
    """Mean and spread of all samples so far. Immutable."""

    mean: Floats
    """The mean, of one sample's shape."""

    m2: Floats
    """The sum of squared distances to the mean, of one sample's shape."""

    count: float
    """How many samples there were."""

    @classmethod
    def empty(cls, shape: tuple[int, ...]) -> Self:
        """Moments of no samples."""
        return cls(np.zeros(shape), np.zeros(shape), 0.0)

    @classmethod
    def of(cls, samples: NDArray[Any]) -> Self:
        """Moments of samples [N, ...]."""
        if not len(samples):
            return cls.empty(samples.shape[1:])
        values = samples.astype(np.float64)
        mean = values.mean(axis=0)
        return cls(mean, np.square(values - mean).sum(axis=0), float(len(values)))

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, NDArray[Any]], name: str) -> Self:
        """Reads `statistics/{name}/mean`, `.../m2` and `.../count`."""
        parts = f"{STATISTICS}{name}/"
        mean, m2 = np.asarray(tensors[f"{parts}mean"]), np.asarray(tensors[f"{parts}m2"])
        return cls(mean, m2, float(tensors[f"{parts}count"]))

    def to_tensors(self, name: str) -> dict[str, Floats]:
        """Names the parts as they travel with the weights."""
        return {
            f"{STATISTICS}{name}/mean": self.mean,
            f"{STATISTICS}{name}/m2": self.m2,
            f"{STATISTICS}{name}/count": np.asarray(self.count, np.float64),
        }

    @property
    def variance(self) -> Floats:
        """The population's variance; 1 where there are too few samples to tell."""
        if self.count < 2:
            return np.ones_like(self.m2)
        variance: Floats = self.m2 / self.count
        return variance

    @property
    def deviation(self) -> Floats:
        """The standard deviation, never 0."""
        deviation: Floats = np.sqrt(self.variance + VARIANCE_EPSILON)
        return deviation

    def merge(self, other: "Moments") -> "Moments":
        r"""Moments of both sets of samples together.

        Chan, Golub and LeVeque 1979, eq. 2.1 (STAN-CS-79-773):

            delta = mean_b - mean_a,   n = n_a + n_b
            mean = mean_a + delta n_b / n,   m2 = m2_a + m2_b + delta^2 n_a n_b / n
        """
        count = self.count + other.count
        if count == 0:
            return self
        delta = other.mean - self.mean
        return Moments(
            self.mean + delta * (other.count / count),
            self.m2 + other.m2 + np.square(delta) * (self.count * other.count / count),
            count,
        )


def merge_statistics(
    tensors: Mapping[str, NDArray[Any]], increments: Mapping[str, NDArray[Any]]
) -> dict[str, Floats]:
    """Merges increments into statistics, both by the names of `Moments.to_tensors`.

    Raises:
      KeyError: `increments` has a statistic that `tensors` lacks, or lacks a part of one.
    """
    merged: dict[str, Floats] = {}
    for name in statistic_names(increments):
        old = Moments.from_tensors(tensors, name)
        merged |= old.merge(Moments.from_tensors(increments, name)).to_tensors(name)
    return merged


def statistic_names(tensors: Mapping[str, Any]) -> list[str]:
    """The names of the statistics among named tensors, for example `observation`."""
    return [
        name.removeprefix(STATISTICS).removesuffix("/count")
        for name in tensors
        if name.startswith(STATISTICS) and name.endswith("/count")
    ]
