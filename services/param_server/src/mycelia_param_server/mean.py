"""The mean of gradients over all samples that they are means of."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from mycelia_param_server.gradient_intake import Push


class GradientSum:
    """Adds gradients up as they come. One caller at a time."""

    def __init__(self, size: int) -> None:
        """Starts with none, of `size` weights each."""
        # In float64: the mean of many workers is the gradient of their joined batch, to float32.
        self._sum = np.zeros(size)
        self._sample_count = 0

    def add(self, gradient: NDArray[np.float32], sample_count: int) -> None:
        """Adds a gradient [P] that is the mean of so many samples."""
        self._sum += np.multiply(gradient, sample_count, dtype=np.float64)
        self._sample_count += sample_count

    def mean(self) -> NDArray[np.float32]:
        """Returns [P] the mean over all samples."""
        with np.errstate(over="ignore"):
            return (self._sum / self._sample_count).astype(np.float32)


def weighted_mean(pushes: Sequence[Push]) -> NDArray[np.float32]:
    """Returns [P] the mean of gradients, weighted by sample count; a single one as it is."""
    if len(pushes) == 1:
        return pushes[0].gradient
    total = GradientSum(pushes[0].gradient.size)
    for push in pushes:
        total.add(push.gradient, push.sample_count)
    return total.mean()
