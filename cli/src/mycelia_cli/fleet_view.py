"""The live view of a fleet: its containers, and how the training goes."""

import sys
import time
from typing import Any

from rich.console import Console, ConsoleRenderable, Group
from rich.live import Live
from rich.table import Table

from mycelia_cli.errors import CommandError
from mycelia_cli.fleet_engine import FleetEngine, service_of
from mycelia_cli.plain import PlainView
from mycelia_cli.progress import Progress, ProgressTracker
from mycelia_cli.stop_request import StopRequest
from mycelia_cli.view import render
from mycelia_core.clients.run import RunClient
from mycelia_core.config import RunConfig
from mycelia_core.rpc.errors import StatusError

_LOOK_SECONDS = 0.5
_CALL_SECONDS = 1.0


class RunLook:
    """Asks the fleet's registry how its run is doing; None while there is no answer."""

    def __init__(self) -> None:
        """Has not asked yet."""
        self._run_id = ""
        self._tracker: ProgressTracker | None = None

    def ask(self, address: str | None) -> Progress | None:
        """Returns how the run is doing, if the registry says so."""
        if address is None:
            return None
        try:
            with RunClient(address) as client:
                answer = client.get_run(timeout=_CALL_SECONDS)
        except (StatusError, TimeoutError):
            return None
        if self._tracker is None or answer.run.run_id != self._run_id:
            self._run_id = answer.run.run_id
            config = RunConfig.model_validate_json(answer.run.config_json)
            self._tracker = ProgressTracker(config)
        return self._tracker.update(answer)


def watch(engine: FleetEngine, stop: StopRequest) -> tuple[Progress | None, int]:
    """Shows the fleet until its containers have ended, or a signal comes.

    Returns:
      the last that was seen of the run, and the largest exit code of the containers.

    Raises:
      CommandError: the fleet is gone.
    """
    look, last = RunLook(), None
    console, plain = Console(), PlainView(sys.stdout)
    with Live(console=console, auto_refresh=False, transient=False) as live:
        while not stop.stopping.is_set():
            containers = engine.containers()
            progress = look.ask(engine.address())
            last = progress or last
            if console.is_terminal:
                live.update(picture(containers, last), refresh=True)
            elif progress:
                plain.update(progress)
            if not containers:
                raise CommandError("the fleet is gone: somebody took it down")
            if all(container.status == "exited" for container in containers):
                break
            time.sleep(_LOOK_SECONDS)
    return last, max(exit_code(container) for container in engine.containers())


def picture(containers: list[Any], progress: Progress | None) -> ConsoleRenderable:
    """Returns the table of containers, and under it the run's panel if there is a run."""
    table = Table(box=None, pad_edge=False, header_style="cyan")
    for heading in ("service", "container", "state", "restarts"):
        table.add_column(heading)
    for container in containers:
        style = "" if container.status == "running" else "dim"
        state = container.attrs["State"]
        table.add_row(
            service_of(container),
            container.short_id,
            describe(state),
            str(container.attrs.get("RestartCount", 0)),
            style=style,
        )
    return Group(table, render(progress)) if progress else table


def describe(state: dict[str, Any]) -> str:
    """Returns a container's state in a few words, from what `docker inspect` says."""
    health = state.get("Health", {}).get("Status", "")
    if state["Status"] == "exited":
        return f"exited with {state['ExitCode']}"
    return f"{state['Status']}, {health}" if health else str(state["Status"])


def exit_code(container: Any) -> int:
    """Returns how a container exited; 0 while it runs."""
    return int(container.attrs["State"]["ExitCode"])
