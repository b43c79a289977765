"""A vector environment in a thread of its own, so that it steps while others think."""

import os
import threading
from collections.abc import Callable, Sequence
from queue import SimpleQueue

from mycelia_actor.environments.group import nobody_stepped
from mycelia_actor.environments.spaces import Columns
from mycelia_actor.environments.vector import StepResult, VectorEnvironment

_NEVER = float("inf")


class ThreadGroup:
    """Steps a vector environment in a thread. A `Group`.

    It pays where the environment lets go of Python's lock, as native ones do.
    """

    def __init__(self, environments: VectorEnvironment, first_slot: int) -> None:
        """Takes ownership of the environments, and starts the thread."""
        self.observation, self.action = environments.observation, environments.action
        self.count = environments.count
        self.first_slot = first_slot
        self.waits = False
        self._environments = environments
        self._work: SimpleQueue[Callable[[], StepResult] | None] = SimpleQueue()
        self._done: SimpleQueue[StepResult | Exception] = SimpleQueue()
        self._read_end, self._write_end = os.pipe()
        self._thread = threading.Thread(target=self._run, name="step", daemon=True)
        self._thread.start()

    def begin_reset(self, seeds: Sequence[int]) -> None:
        """Begins new episodes."""
        self.waits = False
        self._work.put(lambda: nobody_stepped(self._environments.reset(seeds)))

    def begin(self, action: Columns) -> None:
        """Begins a step; actions are columns `[count, ...]`."""
        self.waits = False
        self._work.put(lambda: self._environments.step(action))

    def poll(self) -> StepResult | None:
        """Returns what was begun, if it has come; raises what it raised."""
        if self._done.empty():
            return None
        os.read(self._read_end, 1)
        result = self._done.get()
        if isinstance(result, Exception):
            raise result
        self.waits = True
        return result

    def fileno(self) -> int:
        """Returns the descriptor that is readable when a step is done."""
        return self._read_end

    def deadline(self) -> float:
        """Returns infinity: nothing watches over a thread."""
        return _NEVER

    def close(self) -> None:
        """Ends the thread and closes the environments."""
        self._work.put(None)
        self._thread.join(timeout=5.0)
        if not self._thread.is_alive():
            self._environments.close()
            os.close(self._read_end)
            os.close(self._write_end)

    def _run(self) -> None:
        while (work := self._work.get()) is not None:
            try:
                self._done.put(work())
            except Exception as error:  # noqa: BLE001 - `poll` raises it where it can be handled
                self._done.put(error)
            os.write(self._write_end, b".")
