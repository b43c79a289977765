"""A run that is led from here: its learner is a child, its other services stand elsewhere."""

import os
import time
from pathlib import Path

from mycelia.run.v1 import run_pb2 as pb
from mycelia_cli.attached_run import standing_run
from mycelia_cli.child import Child
from mycelia_cli.ending import Ending, outcome_exit_code
from mycelia_cli.errors import EXIT_FAILURE, CommandError
from mycelia_cli.follow import Follower, View
from mycelia_cli.run_folder import RunFolder, create_run_folder
from mycelia_cli.stop_request import StopRequest
from mycelia_core.clients.run import RunClient
from mycelia_core.clients.waiting import StoppedError
from mycelia_core.config import RunConfig
from mycelia_learner.checkpoint import find_latest, read

UNFINISHED = "unfinished"
"""A file in the folder of a run that was led from here and has not ended: the next one goes on."""

_REACH_SECONDS = 120.0
"""How long to try to reach the registry, which may be starting."""

_LAST_WORDS_SECONDS = 30.0
"""How long the learner may take to write its last files."""

_LOOK_SECONDS = 0.1


class LedRun:
    """Finds or creates the run at an address, and trains it here; owned by one thread.

    A signal stops the learner with a checkpoint but does not end the run. The next command goes
    on with the same run folder: with the run itself if the registry still holds it, else with a
    new one that begins where the newest checkpoint is.
    """

    def __init__(
        self,
        address: str,
        config: RunConfig,
        runs_dir: Path,
        *,
        stop: StopRequest,
        view: View,
        log_level: str,
    ) -> None:
        """Starts nothing yet.

        Args:
          address: the registry's.
          config: of the run, if there is none yet.
          runs_dir: where run folders are.
          stop: ends the command.
          view: shows the run.
          log_level: of the learner, for example `info`.
        """
        self._address = address
        self._config = config
        self._runs_dir = runs_dir
        self._stop = stop
        self._view = view
        self._log_level = log_level

    def run(self) -> Ending:
        """Leads the run until it ends or a signal comes.

        Raises:
          CommandError: the registry cannot be reached or was lost.
          InputError: no run folder can be made.
        """
        with RunClient(self._address) as client:
            try:
                standing = standing_run(client, self._stop.stopping, _REACH_SECONDS)
            except StoppedError:
                return Ending(progress=None, exit_code=self._stop.exit_code)
            except TimeoutError as error:
                raise CommandError(f"no run registry at {self._address}: {error}") from error
            if standing is None or standing.phase == pb.PHASE_FINISHED:
                run, folder = self._create(client)
            else:
                run, folder = standing, self._folder_of(standing)
                self._view.note(f"going on with run {run.run_id}, with the config that it has")
            self._view.note(f"run folder {folder.shown}")
            return self._lead(Follower(client, run, self._view), folder)

    def _create(self, client: RunClient) -> tuple[pb.Run, RunFolder]:
        folder = find_unfinished(self._runs_dir, self._config.name)
        env_steps = _saved_env_steps(folder) if folder else 0
        if folder is None:
            folder = create_run_folder(self._runs_dir, self._config.name)
        run = client.create_run(
            self._config.name, self._config.model_dump_json(), initial_env_steps=env_steps
        )
        goes_on = f"; goes on after {env_steps:,} env steps" if env_steps else ""
        self._view.note(f"created run {run.run_id}{goes_on}")
        return run, folder

    def _folder_of(self, run: pb.Run) -> RunFolder:
        # Set by its learner; a run that has had none yet has no folder either.
        if run.run_dir and Path(run.run_dir).is_dir():
            return RunFolder(Path(run.run_dir))
        return find_unfinished(self._runs_dir, run.name) or create_run_folder(
            self._runs_dir, run.name
        )

    def _lead(self, follower: Follower, folder: RunFolder) -> Ending:
        (folder.path / UNFINISHED).touch()
        learner = self._start_learner(folder)
        try:
            follower.follow(self._stop.stopping, ended=lambda: learner.exit_code() is not None)
            ending = self._end(follower, learner)
        finally:
            learner.kill()
        if follower.is_finished:
            (folder.path / UNFINISHED).unlink(missing_ok=True)
        return ending

    def _start_learner(self, folder: RunFolder) -> Child:
        folder.logs.mkdir(exist_ok=True)
        arguments = ("--join", self._address, "--run-dir", str(folder.path))
        return Child(
            "learner-0",
            "mycelia_learner",
            [*arguments, "--exit-with-parent", "--log-level", self._log_level],
            log_path=folder.logs / "learner-0.log",
            environ=os.environ,
        )

    def _end(self, follower: Follower, learner: Child) -> Ending:
        if self._stop.stopping.is_set():
            learner.terminate()
            learner.wait(time.monotonic() + _LAST_WORDS_SECONDS)
            self._view.note("left the run; it can go on from the newest checkpoint")
            return Ending(progress=follower.progress, exit_code=self._stop.exit_code)
        # That the learner left may be the first sign of the run's end; its last files come then.
        deadline = time.monotonic() + _LAST_WORDS_SECONDS
        follower.look()
        while follower.is_finished and not learner.wait(time.monotonic() + _LOOK_SECONDS):
            if time.monotonic() > deadline:
                break
            follower.look()
        progress = follower.progress
        if follower.is_finished and progress is not None and learner.exit_code() == 0:
            return Ending(progress=progress, exit_code=outcome_exit_code(progress))
        complaints = (learner.obituary(), *(f"  {line}" for line in learner.last_log_lines()))
        return Ending(progress=progress, exit_code=EXIT_FAILURE, complaints=complaints)


def find_unfinished(runs_dir: Path, name: str) -> RunFolder | None:
    """Finds the newest folder of a run of that name that was led from here and has not ended."""
    marks = runs_dir.glob(f"{name}-*/{UNFINISHED}") if runs_dir.is_dir() else ()
    newest = max(marks, key=lambda mark: mark.stat().st_mtime, default=None)
    return RunFolder(newest.parent) if newest else None


def _saved_env_steps(folder: RunFolder) -> int:
    path = find_latest(folder.path)
    return int(read(path).state["env_steps"]) if path else 0
