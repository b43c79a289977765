"""The commands `mycelia serve ...`: one service alone, for containers and other hosts."""

import importlib
from collections.abc import Callable, Sequence

import typer

_SERVICES = {
    "param-server": ("mycelia_param_server", "The run registry and the weights; start it first."),
    "replay": ("mycelia_replay", "Keeps rows."),
    "learner": ("mycelia_learner", "Trains."),
    "actor": ("mycelia_actor", "Steps environments; with --role evaluator it plays greedily."),
    "inference": ("mycelia_actor.inference", "Evaluates the policy for actors of other hosts."),
}

serve_app = typer.Typer(
    help="Run one service here. All but the parameter server need only --join ADDRESS."
)


def serve(module: str, arguments: Sequence[str]) -> int:
    """Runs a service in this process with its own command line; returns its exit code."""
    service = importlib.import_module(f"{module}.main")
    code: int = service.main(list(arguments))
    return code


def _command(module: str) -> Callable[[typer.Context], int]:
    def command(context: typer.Context) -> int:
        return serve(module, context.args)

    return command


for _name, (_module, _help) in _SERVICES.items():
    # All options, --help too, are the service's own to read.
    serve_app.command(
        name=_name,
        help=_help,
        add_help_option=False,
        context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
    )(_command(_module))
