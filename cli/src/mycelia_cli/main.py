"""The command `mycelia`."""

# Heavy imports are inside the commands, so that `mycelia --help` and a typing
# error are answered at once.

import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import typer

from mycelia_cli.errors import (
    EXIT_BAD_INPUT,
    EXIT_FAILURE,
    EXIT_INTERRUPTED,
    EXIT_OK,
    CommandError,
    one_line,
)
from mycelia_cli.fleet import fleet_app
from mycelia_cli.serve import serve_app

app = typer.Typer(
    name="mycelia",
    help="Distributed reinforcement learning: actors, replay, learner and parameter server.",
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(serve_app, name="serve")
app.add_typer(fleet_app, name="fleet")

PresetArgument = Annotated[
    str, typer.Argument(metavar="PRESET", help="A preset's name, or the path of a TOML file.")
]
OverridesArgument = Annotated[
    list[str] | None,
    typer.Argument(metavar="[KEY=VALUE]...", help="Settings, such as learner.batch_size=256."),
]
JsonOption = Annotated[
    bool, typer.Option("--json", help="Make the last line of stdout one JSON object.")
]
RunsDirOption = Annotated[
    Path, typer.Option("--runs-dir", metavar="DIR", help="Where run folders are.")
]
RUNS_DIR = Path("runs")
_LAUNCH_SECONDS = time.time()


@app.command()
def train(
    preset: PresetArgument,
    overrides: OverridesArgument = None,
    *,
    attach: Annotated[
        str,
        typer.Option(metavar="ADDRESS", help="Join services that stand there; start none."),
    ] = "",
    with_learner: Annotated[
        bool,
        typer.Option(
            "--with-learner", help="With --attach: run the learner here; goes on after a stop."
        ),
    ] = False,
    as_json: JsonOption = False,
    runs_dir: RunsDirOption = RUNS_DIR,
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"],
        typer.Option(help="Of the services' logs in the run folder."),
    ] = "info",
) -> int:
    """Train until solved or to the step limit; resume=RUN goes on from an earlier run."""
    from mycelia_cli.train import TrainRequest
    from mycelia_cli.train import train as run

    return run(
        TrainRequest(
            preset=preset,
            overrides=tuple(overrides or ()),
            attach=attach,
            with_learner=with_learner,
            runs_dir=runs_dir,
            as_json=as_json,
            log_level=log_level,
            launch_seconds=_LAUNCH_SECONDS,
        )
    )


@app.command(name="eval")
def evaluate(
    run: Annotated[str, typer.Argument(metavar="RUN", help="A run folder, or its name.")],
    episodes: Annotated[int, typer.Option(min=1, help="Greedy episodes to play.")] = 100,
    *,
    video: Annotated[bool, typer.Option("--video", help="Record an episode, as MP4 or GIF.")] = (
        False
    ),
    as_json: JsonOption = False,
    runs_dir: RunsDirOption = RUNS_DIR,
) -> int:
    """Play greedy episodes with a run's checkpoint."""
    from mycelia_cli.evaluate import evaluate_run

    return evaluate_run(run, episodes, runs_dir=runs_dir, as_json=as_json, video=video)


@app.command()
def play(
    run: Annotated[str, typer.Argument(metavar="RUN", help="A run folder, or its name.")],
    episodes: Annotated[int, typer.Option(min=0, help="Episodes to play; 0 for no end.")] = 0,
    runs_dir: RunsDirOption = RUNS_DIR,
) -> int:
    """Watch greedy episodes of a run in a window."""
    from mycelia_cli.evaluate import play_run

    return play_run(run, episodes, runs_dir=runs_dir)


@app.command()
def status(
    address: Annotated[
        str, typer.Argument(metavar="ADDRESS", help="The parameter server's, host:port.")
    ],
    as_json: JsonOption = False,
) -> int:
    """Show who takes part in a run, and how it is doing."""
    from mycelia_cli.status import show_status

    return show_status(address, as_json=as_json)


@app.command()
def metrics(
    address: Annotated[
        str, typer.Argument(metavar="ADDRESS", help="The parameter server's, host:port.")
    ],
    bind: Annotated[str, typer.Option(metavar="HOST:PORT", help="Where to listen.")] = (
        "127.0.0.1:9464"
    ),
) -> int:
    """Serve a run's figures over HTTP, for Prometheus."""
    from mycelia_cli.exporter import serve_metrics

    return serve_metrics(address, bind)


@app.command()
def presets() -> int:
    """List the presets."""
    from mycelia_cli.listing import list_presets

    return list_presets()


@app.command()
def config(
    preset: PresetArgument,
    overrides: OverridesArgument = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of TOML.")] = False,
) -> int:
    """Print the config that a run would have, complete and checked."""
    from mycelia_cli.listing import show_config

    return show_config(preset, tuple(overrides or ()), os.environ, as_json=as_json)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command and returns its exit code; what goes wrong is said in one line."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        code = app(args=words or ["--help"], prog_name="mycelia", standalone_mode=False)
    except (KeyboardInterrupt, typer.Abort):
        return EXIT_INTERRUPTED
    except typer.TyperException as error:
        return _refuse(error.format_message() + _help_hint(error), EXIT_BAD_INPUT)
    except CommandError as error:
        return _refuse(str(error), error.exit_code)
    except BrokenPipeError:
        # Whoever read stdout has gone; Python must not complain once more at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_FAILURE
    return code if isinstance(code, int) else EXIT_OK


def _help_hint(error: typer.TyperException) -> str:
    context = getattr(error, "ctx", None)
    return f' (see "{context.command_path} --help")' if context else ""


def _refuse(text: str, exit_code: int) -> int:
    print(f"mycelia: {one_line(text)}", file=sys.stderr)
    return exit_code
