"""The folder that a run leaves behind: where it is made and how it is found again."""

import os
import time
from dataclasses import dataclass
from pathlib import Path

from mycelia_cli.errors import InputError, did_you_mean

CONFIG_FILE = "config.json"
RUNS_ON_HOST = "MYCELIA_RUNS_ON_HOST"
"""Variable that a container gets, to tell of run folders as they are called outside."""


@dataclass(frozen=True, slots=True)
class RunFolder:
    """Where the files of one run lie."""

    path: Path

    @property
    def shown(self) -> Path:
        """Where people find it: a container's folder of runs is MYCELIA_RUNS_ON_HOST outside."""
        outside = os.environ.get(RUNS_ON_HOST)
        return Path(outside) / self.path.name if outside else self.path

    @property
    def config(self) -> Path:
        """The resolved config, as JSON."""
        return self.path / CONFIG_FILE

    @property
    def logs(self) -> Path:
        """One log file for each service."""
        return self.path / "logs"

    @property
    def state(self) -> Path:
        """A folder for each service that keeps checkpoints of its own."""
        return self.path / "state"

    @property
    def curve(self) -> Path:
        """The learning curve, drawn when the run ends."""
        return self.path / "curve.png"

    @property
    def checkpoint(self) -> Path:
        """The newest complete checkpoint."""
        return self.path / "checkpoint"


def create_run_folder(runs_dir: Path, name: str) -> RunFolder:
    """Makes `runs_dir/name-YYYYmmdd-HHMMSS`, with a number behind if that is taken.

    Raises:
      InputError: the folder cannot be made.
    """
    stem = f"{name}-{time.strftime('%Y%m%d-%H%M%S')}"
    try:
        runs_dir.mkdir(parents=True, exist_ok=True)
        for number in range(1, 1000):
            path = runs_dir / (stem if number == 1 else f"{stem}-{number}")
            try:
                path.mkdir()
            except FileExistsError:
                continue
            (path / "logs").mkdir()
            return RunFolder(path)
    except OSError as error:
        raise InputError(f"cannot make a run folder in {runs_dir}: {error.strerror}") from error
    raise InputError(f"cannot make a run folder in {runs_dir}: {stem} is taken 999 times")


def find_run_folder(run: str, runs_dir: Path) -> RunFolder:
    """Finds a run by its path or by its name in the folder of runs.

    Raises:
      InputError: there is none; names the nearest that exists.
    """
    for path in (Path(run), runs_dir / run):
        if (path / CONFIG_FILE).is_file():
            return RunFolder(path)
    names = [path.parent.name for path in runs_dir.glob(f"*/{CONFIG_FILE}")]
    hint = did_you_mean(Path(run).name, names)
    if Path(run).is_dir():
        raise InputError(f'"{run}" is not a run folder: it has no {CONFIG_FILE}{hint}')
    raise InputError(f'no run "{run}", here or in {runs_dir}/{hint}')
