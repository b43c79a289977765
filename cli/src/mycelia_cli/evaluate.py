"""The command `mycelia eval`."""

import json
import statistics
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from numpy.typing import NDArray
from pydantic import ValidationError

from mycelia_actor.environments.make import MakeEnvironmentError
from mycelia_actor.evaluation import evaluate
from mycelia_actor.showing import NoVideoError, record_episode, show_episodes
from mycelia_cli.errors import EXIT_OK, CommandError, InputError
from mycelia_cli.run_folder import RunFolder, find_run_folder
from mycelia_core.config import RunConfig
from mycelia_learner.checkpoint import BrokenCheckpointError, load_weights


def evaluate_run(
    run: str, episodes: int, *, runs_dir: Path, as_json: bool, video: bool = False
) -> int:
    """Plays greedy episodes with a run's weights and prints their returns' statistics.

    With `video`, one episode is recorded into the run's folder too.

    Raises:
      InputError: the run is not there, or its folder cannot be read.
      CommandError: the environment cannot be made or does not fit the weights, or
        no video can be written.
    """
    folder = find_run_folder(run, runs_dir)
    config, weights = read_policy(run, folder)
    try:
        # First, so that nobody waits for all episodes to hear that no video can be written.
        shown = record_episode(weights, config, folder.path / "videos", "eval") if video else None
        returns = evaluate(weights, config, episodes)
    except (ValueError, MakeEnvironmentError, NoVideoError) as error:
        raise CommandError(f'cannot evaluate "{run}": {error}') from error
    scores = {
        "eval_return_mean": statistics.fmean(returns),
        "eval_return_std": statistics.pstdev(returns),
        "eval_return_min": min(returns),
        "episodes": len(returns),
        "run_dir": str(folder.path),
    }
    print(
        f"{config.env.id}: return {scores['eval_return_mean']:.1f} ± "
        f"{scores['eval_return_std']:.1f}, min {scores['eval_return_min']:.1f}, "
        f"over {episodes} greedy episodes"
    )
    if shown is not None:
        path, episode_return = shown
        print(f"recorded an episode of return {episode_return:.1f}: {path}")
        scores["video"] = str(path)
    if as_json:
        print(json.dumps(scores))
    return EXIT_OK


def play_run(run: str, episodes: int, *, runs_dir: Path) -> int:
    """Plays greedy episodes in a window, and prints their returns; 0 episodes for no end.

    Raises: what `evaluate_run` raises.
    """
    config, weights = read_policy(run, find_run_folder(run, runs_dir))
    try:
        for episode_return in show_episodes(weights, config, episodes or None):
            print(f"{config.env.id}: return {episode_return:.1f}", flush=True)
    except (ValueError, MakeEnvironmentError) as error:
        raise CommandError(f'cannot play "{run}": {error}') from error
    return EXIT_OK


def read_policy(run: str, folder: RunFolder) -> tuple[RunConfig, Mapping[str, NDArray[Any]]]:
    """Returns a run's config and its best weights.

    Raises:
      InputError: its folder cannot be read.
    """
    config = _read_config(folder)
    try:
        return config, load_weights(folder.path)
    except (FileNotFoundError, BrokenCheckpointError) as error:
        raise InputError(f'"{run}" has no weights to play with: {error}') from error


def _read_config(folder: RunFolder) -> RunConfig:
    try:
        return RunConfig.model_validate_json(folder.config.read_bytes())
    except (OSError, ValidationError) as error:
        raise InputError(f"cannot read {folder.config}: {error}") from error
