"""The command `mycelia train`: starts a run, or follows one, to its end."""

import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path

from mycelia_cli.attached_run import follow_attached
from mycelia_cli.ending import Ending
from mycelia_cli.errors import CommandError, InputError
from mycelia_cli.follow import make_view
from mycelia_cli.led_run import LedRun
from mycelia_cli.local_run import LocalRun
from mycelia_cli.report import Report
from mycelia_cli.resume import Resume, read_resume, split_resume
from mycelia_cli.run_folder import create_run_folder
from mycelia_cli.settings import resolve
from mycelia_cli.stop_request import StopRequest
from mycelia_core.config import RunConfig
from mycelia_core.rpc.errors import StatusError
from mycelia_learner.checkpoint import find_latest, read


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainRequest:
    """What the person asked for."""

    preset: str
    overrides: tuple[str, ...]
    attach: str
    """A registry's address; empty to start the services here."""
    with_learner: bool
    """Whether, of the services of an attached run, the learner is to run here."""
    runs_dir: Path
    as_json: bool
    log_level: str
    launch_seconds: float
    """Unix time when the command was started."""


def train(request: TrainRequest) -> int:
    """Trains and returns the exit code.

    Raises:
      InputError: a setting, the preset or the run to go on from is not valid.
      CommandError: the run could not be started, or was lost.
    """
    resume_name, overrides = split_resume(request.overrides)
    config = resolve(request.preset, overrides, os.environ).config
    resume = read_resume(resume_name, request.runs_dir, config) if resume_name else None
    if request.attach and resume:
        raise InputError("resume= and --attach exclude each other: the learner resumes")
    if request.with_learner and not request.attach:
        raise InputError("--with-learner goes with --attach; without it all services start here")
    try:
        if request.attach:
            run_dir, ending = _train_attached(request, config)
        else:
            run_dir, ending = _train_here(request, config, resume)
    except (StatusError, TimeoutError) as error:
        raise CommandError(str(error)) from error
    report = Report(
        preset=request.preset,
        progress=ending.progress,
        run_dir=run_dir,
        learner_steps=_learner_steps(ending, run_dir),
        launch_seconds=request.launch_seconds,
    )
    _say(ending, report, as_json=request.as_json)
    return ending.exit_code


def _train_here(
    request: TrainRequest, config: RunConfig, resume: Resume | None
) -> tuple[str, Ending]:
    stop = StopRequest()
    folder = create_run_folder(request.runs_dir, config.name)
    folder.config.write_text(config.model_dump_json(indent=2) + "\n", encoding="utf-8")
    with make_view() as view:
        view.note(f"run folder {folder.path}")
        run = LocalRun(
            config, folder, stop=stop, view=view, log_level=request.log_level, resume=resume
        )
        return str(folder.path), run.run()


def _train_attached(request: TrainRequest, config: RunConfig) -> tuple[str, Ending]:
    stop = StopRequest()
    with make_view() as view:
        if request.with_learner:
            ending = LedRun(
                request.attach,
                config,
                request.runs_dir,
                stop=stop,
                view=view,
                log_level=request.log_level,
            ).run()
        else:
            ending = follow_attached(request.attach, config, stop=stop, view=view)
    return (ending.progress.run_dir if ending.progress else ""), ending


def _learner_steps(ending: Ending, run_dir: str) -> int:
    # The learner counts on between its last report and its last checkpoint.
    path = find_latest(run_dir) if run_dir else None
    saved = int(read(path).state["learner_step"]) if path else 0
    return max(saved, ending.progress.learner_steps if ending.progress else 0)


def _say(ending: Ending, report: Report, *, as_json: bool) -> None:
    for line in report.lines():
        print(line)
    sys.stdout.flush()
    for line in ending.complaints:
        print(line, file=sys.stderr)
    if as_json:
        print(json.dumps(report.as_json()), flush=True)
