"""The commands `mycelia fleet ...`: the whole stack in containers, started and scaled from here."""

import json
from pathlib import Path
from typing import Annotated

import typer

from mycelia_cli.errors import EXIT_OK, InputError

fleet_app = typer.Typer(help="Run the whole stack in containers on a Docker engine.")

NameOption = Annotated[str, typer.Option("--name", help="The fleet's, if there are several.")]


@fleet_app.command()
def up(
    preset: Annotated[str, typer.Argument(metavar="[PRESET]")] = "apex-cartpole",
    settings: Annotated[list[str] | None, typer.Argument(metavar="[KEY=VALUE]...")] = None,
    *,
    actors: Annotated[int, typer.Option(min=0, help="How many actors to start.")] = 2,
    detach: Annotated[
        bool, typer.Option("--detach", "-d", help="Leave it running; `fleet down` ends it.")
    ] = False,
    build: Annotated[bool, typer.Option("--build", help="Build the images anew.")] = False,
    build_network: Annotated[
        str, typer.Option(metavar="MODE", help="The network of builds, such as host.")
    ] = "",
    runs_dir: Annotated[Path, typer.Option("--runs-dir", metavar="DIR")] = Path("runs"),
    name: NameOption = "default",
) -> int:
    """Start a stack and show it; when its run ends, or at Ctrl-C, nothing but the run is left."""
    from mycelia_cli.fleet_up import FleetRequest, bring_up

    request = FleetRequest(
        preset=preset,
        settings=tuple(settings or ()),
        actors=actors,
        runs_dir=runs_dir,
        build=build,
        build_network=build_network,
    )
    return bring_up(name, request, detach=detach)


@fleet_app.command()
def status(
    name: NameOption = "default",
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> int:
    """Show the containers, and how the training goes."""
    from rich.console import Console

    from mycelia_cli.fleet_engine import FleetEngine, service_of
    from mycelia_cli.fleet_view import RunLook, describe, picture

    engine = FleetEngine(name)
    containers, progress = engine.containers(), RunLook().ask(engine.address())
    if as_json:
        states = [
            {"service": service_of(c), "id": c.short_id, "state": describe(c.attrs["State"])}
            for c in containers
        ]
        phase = progress.phase if progress else None
        env_steps = progress.env_steps if progress else None
        print(json.dumps({"containers": states, "phase": phase, "env_steps": env_steps}))
    elif containers:
        Console().print(picture(containers, progress))
    else:
        print(f'there is no fleet "{name}"')
    return EXIT_OK


@fleet_app.command()
def scale(
    counts: Annotated[list[str], typer.Argument(metavar="actor=COUNT")],
    name: NameOption = "default",
) -> int:
    """Start or stop actors while the stack runs."""
    from mycelia_cli.fleet_engine import FleetEngine, parse_scale
    from mycelia_cli.fleet_up import scale_actors

    engine = FleetEngine(name)
    wanted = parse_scale(counts)
    if not engine.containers():
        raise InputError(f'there is no fleet "{name}"; start one with `mycelia fleet up --detach`')
    for count in wanted.values():
        scale_actors(engine, count)
    return EXIT_OK


@fleet_app.command()
def logs(
    service: Annotated[str, typer.Argument(help="One service's; all if left out.")] = "",
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with new lines.")] = False,
    name: NameOption = "default",
) -> int:
    """Print what containers have logged."""
    from mycelia_cli.fleet_engine import FleetEngine, service_of

    containers = FleetEngine(name).containers(service)
    if not containers:
        raise InputError(f'no container of {service or "any service"} in fleet "{name}"')
    if follow and len(containers) > 1:
        raise InputError("--follow takes one service with one container, such as learner")
    for container in containers:
        for line in container.logs(stream=True, follow=follow):
            print(f"{service_of(container)} | {line.decode(errors='replace').rstrip()}", flush=True)
    return EXIT_OK


@fleet_app.command()
def down(name: NameOption = "default") -> int:
    """Stop everything and remove it; run folders stay, and the next `up` goes on with them."""
    from mycelia_cli.fleet_engine import FleetEngine

    FleetEngine(name).down()
    return EXIT_OK
