"""Initial priorities, computed on the actor while rows wait for the rewards of their window."""

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.floating]


class NStepPriorities:
    r"""The open n-step windows of N environments. One thread owns it.

    The window that begins at step t of an environment is worth, n steps later
    or at its episode's end if that comes first (m = steps really taken):

        priority = |R + Gamma * max_a Q(s_{t+m}, a) - Q(s_t, a_t)|
        R = sum_{k<m} gamma^k r_{t+k},  Gamma = gamma^m, but 0 if it terminated

    with n = 3, and an end after step 5, windows close like this:

        step     0  1  2  3  4  5 end
        opens    0  1  2  3  4  5
        closes            0  1  2, then 3, 4, 5 with m = 3, 2, 1

    A window that closed at an end waits, so that steps leave in the order in
    which they came. Values that are not known are NaN, and so are the
    priorities that need them.
    """

    def __init__(self, count: int, n: int, gamma: float) -> None:
        """Prepares for N environments and windows of n steps."""
        self._gamma = gamma
        self._n = n
        self._q_taken = np.full((n, count), np.nan)
        self._return = np.zeros((n, count))
        # gamma^m while a window is open, 0 once it is closed: what its next
        # reward, or its bootstrap value, counts.
        self._discount = np.zeros((n, count))

    def close(self, place: int, q_max: Values) -> NDArray[np.float64]:
        """Returns the priorities [N] of the windows opened n steps ago at `place`.

        Args:
          place: the step's number modulo n.
          q_max: [N] max_a Q of the observations that are acted on now.
        """
        discount = self._discount[place]
        # An environment's closed window must not see the values of what came later.
        bootstrap = np.where(discount > 0, discount * q_max, 0.0)
        return np.abs(self._return[place] + bootstrap - self._q_taken[place])

    def open(self, place: int, q_taken: Values, ready: NDArray[np.bool_]) -> None:
        """Opens the windows of a step at `place`, of the environments that are ready.

        Args:
          place: the step's number modulo n.
          q_taken: [N] Q(s, a) of the actions taken.
          ready: [N] which environments take the step.
        """
        self._q_taken[place] = q_taken
        self._return[place] = 0.0
        self._discount[place] = ready

    def add(self, reward: NDArray[np.float64]) -> None:
        """Adds the step's rewards [N] to all open windows."""
        self._return += self._discount * reward
        self._discount *= self._gamma

    def end(self, slots: NDArray[np.int64], bootstrap: Values) -> None:
        """Closes all windows of environments whose episode has ended.

        Args:
          slots: [E] the environments.
          bootstrap: [E] what their final observation is worth: 0 where the
            episode terminated, max_a Q of it where it was truncated.
        """
        self._return[:, slots] += np.where(
            self._discount[:, slots] > 0, self._discount[:, slots] * bootstrap, 0.0
        )
        self._discount[:, slots] = 0.0
