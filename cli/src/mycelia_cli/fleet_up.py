"""Bringing a fleet up, and scaling its actors."""

import os
from dataclasses import dataclass
from pathlib import Path

from mycelia_cli.errors import EXIT_FAILURE, EXIT_OK, InputError
from mycelia_cli.fleet_engine import FleetEngine
from mycelia_cli.fleet_plan import Service, actor, plan
from mycelia_cli.fleet_view import watch
from mycelia_cli.settings import resolve
from mycelia_cli.stop_request import StopRequest


@dataclass(frozen=True, kw_only=True, slots=True)
class FleetRequest:
    """What the person asked for."""

    preset: str
    settings: tuple[str, ...]
    actors: int
    runs_dir: Path
    build: bool
    build_network: str


def bring_up(name: str, request: FleetRequest, *, detach: bool) -> int:
    """Starts a fleet; unless detached, shows it to its end and takes it down.

    Raises:
      InputError: the settings are not valid, or the fleet is there already.
      CommandError: the engine is away or refused; nothing is left of the fleet.
    """
    # A mistake is told now and not by a container.
    config = resolve(request.preset, request.settings, os.environ).config
    engine = FleetEngine(name)
    if engine.containers():
        raise InputError(f'fleet "{name}" is there already; `mycelia fleet down` takes it down')
    stop = StopRequest()
    try:
        _start(engine, request, plan(request.preset, request.settings, config))
        if detach:
            print(f"fleet {name} runs; its registry is at {engine.address()}")
            return EXIT_OK
        progress, exit_code = watch(engine, stop)
    except BaseException:
        engine.down()
        raise
    engine.down()
    if stop.stopping.is_set():
        print(
            f"stopped; run folders are in {request.runs_dir}, `mycelia fleet up` goes on with them"
        )
        return stop.exit_code
    if progress is not None:
        print(f"{progress.outcome or 'ended'}: {progress.outcome_detail}")
        print(f"  run folder  {request.runs_dir / Path(progress.run_dir).name}")
    return EXIT_FAILURE if exit_code else EXIT_OK


def scale_actors(engine: FleetEngine, count: int) -> None:
    """Starts actors, or stops those that came last, until there are `count`."""
    running = [c for c in engine.containers("actor") if c.status == "running"]
    for container in running[count:]:
        engine.remove(container)
    taken = {str(container.name) for container in engine.containers("actor")}
    free = (i for i in range(10_000) if not any(name.endswith(f"-actor-{i}") for name in taken))
    for _ in range(count - len(running)):
        engine.start(actor(), next(free))


def _start(engine: FleetEngine, request: FleetRequest, services: list[Service]) -> None:
    names = [service.image for service in services]
    for image in dict.fromkeys(names) if request.build else engine.missing_images(names):
        print(f"building {engine.image(image)}, which takes some minutes", flush=True)
        engine.build(image, request.build_network or None)
    engine.prepare(request.runs_dir)
    for service in services:
        if service.name == "actor":
            scale_actors(engine, request.actors)
            continue
        engine.start(service, runs=request.runs_dir if service.name == "learner" else None)
        if service.name == "param_server":
            # All others need its registry.
            engine.wait_healthy(service.name)
