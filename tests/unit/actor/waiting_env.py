"""An environment that waits."""

import time

from counting_env import CountingEnv


class WaitingEnv(CountingEnv):
    """Counts, and sleeps at each step."""

    def __init__(self, seconds):
        super().__init__()
        self._seconds = seconds

    def step(self, action):
        time.sleep(self._seconds)
        return super().step(action)
