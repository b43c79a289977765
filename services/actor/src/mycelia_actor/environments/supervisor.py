"""Who watches over environments that raise: logs, backs off, makes them again."""

import logging
import time
from collections.abc import Callable, Sequence

import numpy as np

from mycelia_actor.environments.make import Environment, MakeEnvironmentError
from mycelia_core.config import EnvConfig
from mycelia_core.seeds import seed_int

logger = logging.getLogger(__name__)

MAX_BACKOFF_SECONDS = 30.0
QUIET_SECONDS = 10.0
"""An environment that fails again and again is logged with its stack this often, at most."""


class EnvironmentFailedError(RuntimeError):
    """An environment failed as often in a row as it may."""


class Restarts:
    """When something that failed may be started again: at once, then later and later.

    The first restart is immediate; the k-th in a row without a good step in
    between waits base * 2^(k-2) seconds, at most `MAX_BACKOFF_SECONDS`.
    """

    def __init__(self, what: str, max_restarts: int, base_seconds: float) -> None:
        """Counts for `what`, which errors name."""
        self._what = what
        self._max_restarts = max_restarts
        self._base_seconds = base_seconds
        self.failures = 0
        """In a row."""
        self.next_time = 0.0
        """When the next start may be made, as `time.monotonic` counts."""

    def report_failure(self, reason: str) -> None:
        """Counts a failure and sets the time of the next start.

        Raises:
          EnvironmentFailedError: it was one too many.
        """
        self.failures += 1
        if self.failures > self._max_restarts:
            raise EnvironmentFailedError(
                f"{self._what} failed {self.failures} times in a row, env.max_restarts is "
                f"{self._max_restarts}; the last time: {reason}"
            )
        wait = self._base_seconds * 2.0 ** (self.failures - 2) if self.failures > 1 else 0.0
        self.next_time = time.monotonic() + min(wait, MAX_BACKOFF_SECONDS)

    def report_good_step(self) -> None:
        """Forgets the failures."""
        self.failures = 0


class Supervisor:
    """Restarts environments of one process that raise. The thread that steps them owns it."""

    def __init__(
        self,
        config: EnvConfig,
        make: Callable[[EnvConfig], Environment],
        count: int,
        first_slot: int = 0,
    ) -> None:
        """Watches over `count` environments, the first of which is the actor's `first_slot`."""
        self._config = config
        self._make = make
        self._first_slot = first_slot
        self._restarts = [
            Restarts(self._name(slot), config.max_restarts, config.restart_seconds)
            for slot in range(count)
        ]
        self._seeds = [0] * count
        self._restart_count = [0] * count
        self._next_log = 0.0
        self.down: set[int] = set()
        """The slots without a working environment."""
        self.suspects: set[int] = set()
        """The slots that have not made a good step since they failed."""

    def forget(self, seeds: Sequence[int]) -> None:
        """Starts anew with these seeds."""
        self._seeds = list(seeds)

    def seed(self, slot: int) -> int:
        """Returns the seed to reset with: a new one for every restart."""
        key = (self._restart_count[slot],)
        return seed_int(np.random.SeedSequence(self._seeds[slot], spawn_key=key))

    def report_failure(self, slot: int, error: Exception) -> None:
        """Logs a failure and takes the slot out until it is restarted.

        Raises:
          EnvironmentFailedError: it has failed too often in a row.
        """
        loud = time.monotonic() >= self._next_log
        if loud:
            self._next_log = time.monotonic() + QUIET_SECONDS
        logger.warning(
            "%s, seed %d, failed; it is restarted: %s: %s",
            self._name(slot),
            self._seeds[slot] if not self._restart_count[slot] else self.seed(slot),
            type(error).__name__,
            error,
            exc_info=error if loud else None,
        )
        self._restart_count[slot] += 1
        self.down.add(slot)
        self.suspects.add(slot)
        self._restarts[slot].report_failure(f"{type(error).__name__}: {error}")

    def restart(self, slot: int, broken: Environment) -> Environment | None:
        """Returns a new environment if it is time for one, and it can be made."""
        if time.monotonic() < self._restarts[slot].next_time:
            return None
        try:
            broken.close()
        except Exception as error:  # noqa: BLE001 - it is broken; nothing it says matters
            logger.debug("closing %s failed too: %s", self._name(slot), error)
        try:
            return self._make(self._config)
        except MakeEnvironmentError as error:
            self.report_failure(slot, error)
            return None

    def report_restart(self, slot: int) -> None:
        """Says that the slot works again."""
        self.down.discard(slot)

    def report_good_step(self, slot: int) -> None:
        """Says that the slot has stepped."""
        if slot in self.suspects:
            self.suspects.discard(slot)
            self._restarts[slot].report_good_step()

    def _name(self, slot: int) -> str:
        return f"environment {self._first_slot + slot} ({self._config.id})"
