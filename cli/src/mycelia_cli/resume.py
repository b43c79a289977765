"""Going on from an earlier run: the word `resume=RUN` and what it refers to."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from mycelia_cli.errors import InputError
from mycelia_cli.run_folder import RunFolder, find_run_folder
from mycelia_core.config import RunConfig
from mycelia_learner.checkpoint import BrokenCheckpointError, find_latest, read

_WORD = "resume="


@dataclass(frozen=True, slots=True)
class Resume:
    """The run to go on from."""

    folder: RunFolder
    env_steps: int
    """Environment steps behind its newest checkpoint."""


def split_resume(words: Iterable[str]) -> tuple[str, tuple[str, ...]]:
    """Takes `resume=RUN` out of the overrides; the last one counts.

    Returns:
      RUN, empty if there is none, and the other words.

    Raises:
      InputError: there is nothing behind `resume=`.
    """
    words = tuple(words)
    runs = [word.removeprefix(_WORD) for word in words if word.startswith(_WORD)]
    if runs and not runs[-1]:
        raise InputError("resume= is empty: expected a run folder or its name")
    others = tuple(word for word in words if not word.startswith(_WORD))
    return (runs[-1] if runs else ""), others


def read_resume(run: str, runs_dir: Path, config: RunConfig) -> Resume:
    """Finds the run and how far its newest checkpoint is.

    Raises:
      InputError: there is no such run, it has no whole checkpoint, or the new
        run's step limit lies behind it.
    """
    folder = find_run_folder(run, runs_dir)
    path = find_latest(folder.path)
    if path is None:
        raise InputError(f'cannot resume "{run}": it has no whole checkpoint')
    try:
        state = read(path).state
        env_steps, updates = int(state["env_steps"]), int(state["learner_step"])
    except (BrokenCheckpointError, KeyError, ValueError) as error:
        raise InputError(f'cannot resume "{run}": {error}') from error
    _check_room(run, "env steps", env_steps, "max_env_steps", config.limits.max_env_steps)
    if config.limits.max_updates:
        _check_room(run, "updates", updates, "max_updates", config.limits.max_updates)
    return Resume(folder, env_steps)


def _check_room(run: str, what: str, done: int, key: str, limit: int) -> None:
    if done >= limit:
        raise InputError(
            f'cannot resume "{run}": it has {done} {what} behind it, and '
            f"limits.{key}={limit}; set a higher limit"
        )
