"""One run with all of its services on this machine, from start to clean end."""

import os
import time

from mycelia.run.v1 import run_pb2 as pb
from mycelia_cli.child import Child
from mycelia_cli.ending import Ending, outcome_exit_code
from mycelia_cli.errors import EXIT_FAILURE
from mycelia_cli.follow import Follower, View
from mycelia_cli.launcher import Launcher
from mycelia_cli.progress import Progress
from mycelia_cli.resume import Resume
from mycelia_cli.run_folder import RunFolder
from mycelia_cli.stop_request import StopRequest
from mycelia_core.clients.run import RunClient
from mycelia_core.config import RunConfig

_LAST_WORDS_SECONDS = 30.0
"""How long services may take to write their last files once a run is finished."""

_LEAVE_SECONDS = 5.0
"""How long members may take to leave a run that was stopped."""

_LOOK_SECONDS = 0.1
"""From one look at a run that is over to the next."""


class LocalRun:
    """Starts the services, follows the run and stops them; owned by one thread."""

    def __init__(
        self,
        config: RunConfig,
        folder: RunFolder,
        *,
        stop: StopRequest,
        view: View,
        log_level: str,
        resume: Resume | None,
    ) -> None:
        """Starts nothing yet."""
        self._config = config
        self._folder = folder
        self._stop = stop
        self._view = view
        self._resume = resume
        self._launcher = Launcher(config, folder, environ=os.environ, log_level=log_level)

    def run(self) -> Ending:
        """Runs to the end and leaves no process behind, whatever happens.

        Raises:
          StatusError: the parameter server refused the run.
          TimeoutError: it did not answer.
        """
        try:
            earlier = self._resume.folder if self._resume else None
            address = self._launcher.start_server(self._stop.stopping, earlier)
            failed = self._launcher.exited()
            if failed:
                return self._failure(None, failed)
            if address is None:
                return Ending(progress=None, exit_code=self._stop.exit_code)
            with RunClient(address) as client:
                return self._run(client, address)
        finally:
            self._launcher.kill()

    def _run(self, client: RunClient, address: str) -> Ending:
        resume = self._resume
        run = client.create_run(
            self._config.name,
            self._config.model_dump_json(),
            initial_env_steps=resume.env_steps if resume else 0,
        )
        self._launcher.start_members(address, resume.folder if resume else None)
        self._view.note(f"services join at {address}; logs in {self._folder.logs}")
        follower = Follower(client, run, self._view)
        follower.follow(self._stop.stopping, ended=lambda: bool(self._launcher.exited()))
        if self._launcher.is_serving and not self._stop.stopping.is_set():
            # That a service left may be the first sign of the run's end.
            follower.look()
        return self._end(follower)

    def _end(self, follower: Follower) -> Ending:
        if follower.is_finished:
            return self._end_by_itself(follower)
        if self._stop.stopping.is_set():
            self._cut_short(follower, pb.OUTCOME_STOPPED, "on request")
            return Ending(progress=follower.progress, exit_code=self._stop.exit_code)
        failed = self._launcher.exited()
        self._cut_short(follower, pb.OUTCOME_FAILED, failed[0].obituary())
        return self._failure(follower.progress, failed)

    def _end_by_itself(self, follower: Follower) -> Ending:
        deadline = time.monotonic() + _LAST_WORDS_SECONDS
        while not self._launcher.wait_members(_LOOK_SECONDS, self._stop.stopping):
            if self._stop.stopping.is_set() or time.monotonic() > deadline:
                break
            # The members' last counters come while they take leave.
            follower.look()
        follower.look()
        failed = [child for child in self._launcher.exited() if child.exit_code() != 0]
        self._launcher.stop(leave_seconds=0.0)
        progress = follower.progress
        if failed or progress is None:
            return self._failure(progress, failed)
        return Ending(progress=progress, exit_code=outcome_exit_code(progress))

    def _cut_short(self, follower: Follower, outcome: pb.Outcome.ValueType, detail: str) -> None:
        start = time.monotonic()
        heard = self._launcher.is_serving and follower.finish(outcome, detail)
        # Only those that take part in the run learn of its end from the registry.
        self._launcher.ask_to_stop(except_pids=follower.pids if heard else ())
        self._launcher.stop_members(_LEAVE_SECONDS - (time.monotonic() - start))
        if heard:
            follower.look()
        self._launcher.stop()

    def _failure(self, progress: Progress | None, failed: list[Child]) -> Ending:
        complaints = [line for child in failed for line in (child.obituary(), *_log(child))]
        return Ending(progress=progress, exit_code=EXIT_FAILURE, complaints=tuple(complaints))


def _log(child: Child) -> list[str]:
    lines = child.last_log_lines() or ["(nothing logged)"]
    return [f"  {child.name} | {line}" for line in lines]
