"""Initial priorities, computed on the actor while rows wait for the rewards of their window."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.floating[Any]] | float


class NStepPriorities:
    r"""The open n-step windows of N environments. One thread owns it.

    The window that begins at step t of an environment is closed n steps later,
    or at its episode's end if that comes first (after m <= n steps):

        priority = |R + Gamma * max_a Q(s_{t+m}, a) - Q(s_t, a_t)| + epsilon
        R = sum_{k<m} gamma^k r_{t+k},  Gamma = gamma^m, or 0 if it terminated

    Drawn for n = 3 and an episode that ends with step 5:

        step    0  1  2  3  4  5 | 6
        opens   0  1  2  3  4  5 | 6
        closes           0  1  2 | 3    3, 4 and 5 are cut short at the end: m = 3, 2, 1

    Every step is `open`, `add` and, if episodes ended, `end`; from the n-th
    step on `close` comes first, and gives the priorities of the step n ago.
    What is not known is NaN, and so are the priorities that need it.
    """

    def __init__(self, count: int, n: int, gamma: float, epsilon: float = 0.0) -> None:
        """Prepares for N environments and windows of n steps, n at least 1."""
        self.n = n
        """How many steps a window has."""
        self._gamma = gamma
        self._epsilon = epsilon
        self._place = 0
        """Where the windows of the step to come stand: its number modulo n."""
        self._q_taken = np.full((n, count), np.nan)
        self._return = np.zeros((n, count))
        # gamma^m while a window is open, 0 from its episode's end on: what the
        # next reward, or the bootstrap value, counts in it.
        self._discount = np.zeros((n, count))

    def close(self, q_max: Values) -> NDArray[np.float64]:
        """Returns the priorities [N] of the windows that were opened n steps ago.

        Args:
          q_max: [N] max_a Q of the observations that are acted on in this step.
        """
        target = self._return[self._place] + self._discount[self._place] * q_max
        priorities: NDArray[np.float64] = np.abs(target - self._q_taken[self._place])
        return priorities + self._epsilon

    def open(self, q_taken: Values) -> None:
        """Opens the windows of this step; [N] Q(s, a) of the actions taken."""
        self._q_taken[self._place] = q_taken
        self._return[self._place] = 0.0
        self._discount[self._place] = 1.0
        self._place = (self._place + 1) % self.n

    def add(self, reward: NDArray[np.float64]) -> None:
        """Adds this step's rewards [N] to all open windows."""
        self._return += self._discount * reward
        self._discount *= self._gamma

    def end(self, slots: NDArray[np.int64], bootstrap: Values) -> None:
        """Closes all windows of the environments whose episode ended with this step.

        Args:
          slots: [E] the environments.
          bootstrap: [E] what their final observation is worth: 0 where the
            episode terminated, max_a Q of it where it was truncated.
        """
        self._return[:, slots] += self._discount[:, slots] * bootstrap
        self._discount[:, slots] = 0.0
