"""Observations as the flat features that an MLP takes."""

from collections.abc import Sequence
from math import prod

import numpy as np
from numpy.typing import NDArray

from mycelia_actor.environments.spaces import Columns
from mycelia_core.specs import ColumnSpec


class Features:
    """Flattens observation columns and puts them side by side, in the signature's order."""

    def __init__(self, specs: Sequence[ColumnSpec]) -> None:
        """Takes the observation's columns."""
        self._names = [spec.name for spec in specs]
        self.size = sum(prod(spec.shape) for spec in specs)
        """How many numbers one observation has."""

    def __call__(self, columns: Columns) -> NDArray[np.float32]:
        """Returns `[N, size]` float32 of columns `[N, ...]`."""
        parts = [
            columns[name].reshape(len(columns[name]), -1).astype(np.float32, copy=False)
            for name in self._names
        ]
        return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)
