"""The command `mycelia eval`."""

import json
import statistics
from pathlib import Path

from pydantic import ValidationError

from mycelia_actor.evaluation import evaluate
from mycelia_cli.errors import EXIT_OK, CommandError, InputError
from mycelia_cli.run_folder import RunFolder, find_run_folder
from mycelia_core.config import RunConfig
from mycelia_learner.checkpoint import BrokenCheckpointError, load_weights


def evaluate_run(run: str, episodes: int, *, runs_dir: Path, as_json: bool) -> int:
    """Plays greedy episodes with a run's weights and prints their returns' statistics.

    Raises:
      InputError: the run is not there, or its folder cannot be read.
      CommandError: the environment cannot be made or does not fit the weights.
    """
    folder = find_run_folder(run, runs_dir)
    config = _read_config(folder)
    try:
        weights = load_weights(folder.path)
    except (FileNotFoundError, BrokenCheckpointError) as error:
        raise InputError(f'cannot evaluate "{run}": {error}') from error
    try:
        returns = evaluate(weights, config, episodes)
    except ValueError as error:
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
    if as_json:
        print(json.dumps(scores))
    return EXIT_OK


def _read_config(folder: RunFolder) -> RunConfig:
    try:
        return RunConfig.model_validate_json(folder.config.read_bytes())
    except (OSError, ValidationError) as error:
        raise InputError(f"cannot read {folder.config}: {error}") from error
