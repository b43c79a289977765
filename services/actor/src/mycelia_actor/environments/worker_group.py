"""A group of environments in a worker process, which is restarted when it hangs or crashes."""

import logging
import os
import time
from collections.abc import Sequence
from enum import Enum, auto

import numpy as np

from mycelia_actor.environments.action_mask import ActionMaskError
from mycelia_actor.environments.group import nobody_stepped
from mycelia_actor.environments.shared_arrays import StepMemory, step_fields
from mycelia_actor.environments.spaces import Columns, SpaceColumns
from mycelia_actor.environments.supervisor import EnvironmentFailedError, Restarts
from mycelia_actor.environments.vector import Observation, StepResult
from mycelia_actor.environments.worker import RESET, STEP, Task
from mycelia_actor.environments.worker_process import WorkerError, WorkerGoneError, WorkerProcess
from mycelia_core.config import EnvConfig
from mycelia_core.seeds import seed_int

logger = logging.getLogger(__name__)

START_SECONDS = 120.0
"""How long a worker may take to import and make its environments."""

_NEVER = float("inf")


class _Phase(Enum):
    DOWN = auto()
    """There is no process; the next one is started when the back-off is over."""
    STARTING = auto()
    RESETTING = auto()
    STEPPING = auto()
    IDLE = auto()


class WorkerGroup:
    """Environments that a worker process steps. A `Group`.

    The actor and its other groups do not notice when the process is lost: the
    episodes end with what was seen last, and new ones begin in a new process.
    """

    def __init__(
        self,
        config: EnvConfig,
        first_slot: int,
        count: int,
        spaces: tuple[SpaceColumns, SpaceColumns],
    ) -> None:
        """Starts the process; does not wait for it.

        Args:
          config: which environment.
          first_slot: the number of the first one among the actor's.
          count: how many.
          spaces: the columns of observation and action.
        """
        self.observation, self.action = spaces
        self.count = count
        self.first_slot = first_slot
        self._config = config
        self._name = f"the worker of environments {first_slot} to {first_slot + count - 1}"
        level = logging.getLevelName(logging.getLogger().getEffectiveLevel()).lower()
        self._task = Task(config.model_dump(mode="json"), first_slot, count, level)
        self._fields = step_fields(self.observation, self.action, count)
        self._memory, self._descriptor = StepMemory.make(self._fields, count)
        self._restarts = Restarts(self._name, config.max_restarts, config.restart_seconds)
        self._seeds: list[int] = []
        self._restart_count = 0
        self._seen = Observation(
            self.observation.zeros(count), np.zeros(count, np.bool_), np.zeros(count, np.bool_)
        )
        self._phase = _Phase.DOWN
        self._deadline = _NEVER
        self._process: WorkerProcess | None = None
        self._start()

    @property
    def waits(self) -> bool:
        """Whether it waits for `begin`: not while a step is under way, or the process starts."""
        return self._phase is _Phase.IDLE

    def begin_reset(self, seeds: Sequence[int]) -> None:
        """Begins new episodes, as soon as the process is there."""
        self._seeds = list(seeds)
        if self._phase is _Phase.IDLE:
            self._reset()

    def begin(self, action: Columns) -> None:
        """Begins a step; actions are columns `[count, ...]`."""
        assert self._process and self._phase is _Phase.IDLE, self._phase
        self._memory.write_action(action)
        self._process.send(STEP)
        self._enter(_Phase.STEPPING, self._config.step_timeout_seconds)

    def poll(self) -> StepResult | None:
        """Returns what was begun, if it has come; never waits long.

        Raises:
          EnvironmentFailedError: an environment, or the process, failed too often.
          ActionMaskError: a mask is missing or allows nothing.
        """
        if self._process is None:
            if time.monotonic() >= self._restarts.next_time:
                self._start()
            return None
        try:
            return self._receive(self._process)
        except WorkerGoneError:
            return self._lose(f"{self._name} {self._process.ending()}")
        except WorkerError as error:
            text = str(error)
            kind = ActionMaskError if text.startswith("ActionMask") else EnvironmentFailedError
            raise kind(text) from error

    def fileno(self) -> int:
        """Returns the descriptor of the process's socket; -1 while it is down."""
        return self._process.fileno() if self._process else -1

    def deadline(self) -> float:
        """Returns when the watchdog looks, or the process is started again."""
        return self._deadline if self._process else self._restarts.next_time

    def close(self) -> None:
        """Ends the process."""
        if self._process:
            self._process.end(by_force=self._phase is not _Phase.IDLE)
            self._process = None
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _receive(self, process: WorkerProcess) -> StepResult | None:
        came = process.receive_fields() if self._phase is _Phase.STARTING else process.receive()
        if came is None:
            if time.monotonic() < self._deadline:
                return None
            waited = f"{self._name} hangs: no answer within env.step_timeout_seconds"
            return self._lose(f"{waited}={self._config.step_timeout_seconds:g}")
        if self._phase is _Phase.STARTING:
            self._check(came)
            self._phase = _Phase.IDLE
            if self._seeds:
                self._reset()
            return None
        if self._phase is _Phase.RESETTING:
            result = nobody_stepped(self._memory.read_observation())
        else:
            result = self._memory.read_result()
            self._restarts.report_good_step()
        self._seen = result.observation
        self._enter(_Phase.IDLE, _NEVER)
        return result

    def _start(self) -> None:
        self._process = WorkerProcess(self._task, self._descriptor)
        self._enter(_Phase.STARTING, START_SECONDS)

    def _reset(self) -> None:
        assert self._process
        key = (self._restart_count,)
        self._memory.seeds[:] = [
            seed_int(np.random.SeedSequence(seed, spawn_key=key)) if self._restart_count else seed
            for seed in self._seeds
        ]
        self._process.send(RESET)
        self._enter(_Phase.RESETTING, self._config.step_timeout_seconds)

    def _enter(self, phase: _Phase, seconds: float) -> None:
        self._phase = phase
        self._deadline = time.monotonic() + seconds

    def _check(self, fields: object) -> None:
        wanted = [[name, list(shape), dtype] for name, shape, dtype in self._fields]
        if fields != wanted:
            raise EnvironmentFailedError(
                f"{self._name} has other spaces than the actor: {fields}, expected {wanted}"
            )

    def _lose(self, reason: str) -> StepResult | None:
        """Ends the process, says why, and lets the episodes end with what was seen last."""
        assert self._process
        slot = int(self._memory.current_slot[0])
        seed = f"{self.first_slot + slot}, seed {self._memory.seeds[slot]}" if slot >= 0 else "none"
        logger.warning(
            "%s; environment being stepped: %s (%s); it is started again; its stack:\n%s",
            reason,
            seed,
            self._config.id,
            self._process.stack() or "unknown",
        )
        self._process.end(by_force=True)
        self._process = None
        was_stepping = self._phase is _Phase.STEPPING
        self._phase = _Phase.DOWN
        self._memory.current_slot[0] = -1
        self._restart_count += 1
        self._restarts.report_failure(reason)
        if not was_stepping:
            return None
        nobody = np.zeros(self.count, np.bool_)
        failed = np.flatnonzero(self._seen.ready)
        self._seen = Observation(self._seen.columns, nobody, nobody)
        return nobody_stepped(self._seen, failed)
