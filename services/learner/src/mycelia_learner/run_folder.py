"""The run's folder, where the learner writes its files."""

import json
import time
from pathlib import Path

from mycelia.run.v1 import run_pb2 as pb

CONFIG = "config.json"


def choose_run_dir(run: pb.Run, *, given: Path | None, runs_dir: Path) -> Path:
    """Finds where the run's files go: where told, where they are already, or a new folder."""
    if given is not None:
        return given.absolute()
    if run.run_dir and Path(run.run_dir).is_dir():
        return Path(run.run_dir)
    stamp = time.strftime("%Y%m%d-%H%M%S")
    return (runs_dir / f"{run.name}-{stamp}").absolute()


def prepare_run_dir(run_dir: Path, config_json: str) -> None:
    """Makes the folder and leaves the resolved config in it."""
    run_dir.mkdir(parents=True, exist_ok=True)
    text = json.dumps(json.loads(config_json), indent=2) + "\n"
    (run_dir / CONFIG).write_text(text, encoding="utf-8")
