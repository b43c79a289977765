"""The command `mycelia status`."""

import json
import time
from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC
from typing import Any

from rich.console import Console
from rich.table import Table

from mycelia.params.v1 import params_pb2
from mycelia.run.v1 import run_pb2 as pb
from mycelia_cli.errors import EXIT_OK, CommandError
from mycelia_cli.gradient_figures import read_gradients
from mycelia_cli.plain import line
from mycelia_cli.progress import ROLES, Progress, ProgressTracker
from mycelia_core.clients.run import RunClient
from mycelia_core.config import RunConfig
from mycelia_core.rpc.errors import FailedPreconditionError, StatusError

_CALL_SECONDS = 5.0
_RATE_SECONDS = 1.0


def show_status(address: str, *, as_json: bool) -> int:
    """Prints a run's state and members.

    Raises:
      CommandError: the registry cannot be reached, or holds no run.
    """
    answer = _ask(address)
    tracker = ProgressTracker(RunConfig.model_validate_json(answer.run.config_json))
    progress = tracker.update(answer, _ask_for_gradients(address, answer, tracker))
    if as_json:
        print(json.dumps(_as_json(answer, progress)))
        return EXIT_OK
    if not progress.is_finished:
        # Rates take a second look.
        time.sleep(_RATE_SECONDS)
        answer = _ask(address)
        progress = tracker.update(answer, _ask_for_gradients(address, answer, tracker))
    console = Console()
    console.print(f"{progress.name}, run {progress.run_id}", style="bold", highlight=False)
    console.print(line(progress), highlight=False, soft_wrap=True)
    console.print(_table(answer))
    return EXIT_OK


def _ask(address: str) -> pb.GetRunResponse:
    with RunClient(address) as client:
        try:
            return client.get_run(timeout=_CALL_SECONDS)
        except FailedPreconditionError as error:
            raise CommandError(f"no run at {address}: {error}") from error
        except (StatusError, TimeoutError) as error:
            raise CommandError(f"cannot reach {address}: {error}") from error


def _ask_for_gradients(
    address: str, answer: pb.GetRunResponse, tracker: ProgressTracker
) -> params_pb2.GetGradientInfoResponse | None:
    if not tracker.wants_gradients:
        return None
    with RunClient(address) as client:
        return read_gradients(client, answer.run.run_id, _CALL_SECONDS)


def _table(answer: pb.GetRunResponse) -> Table:
    table = Table("role", "index", "host", "pid", "address", "alive", "last seen", "counters")
    for member in answer.members:
        table.add_row(
            ROLES.get(member.role, "?"),
            str(member.index),
            member.host,
            str(member.pid),
            member.address,
            "yes" if member.alive else "no",
            f"{_silence_seconds(member):.1f} s ago",
            _counters(member.counters),
            style="" if member.alive else "dim",
        )
    return table


def _counters(counters: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {value:,.6g}" for name, value in sorted(counters.items()))


def _silence_seconds(member: pb.Member) -> float:
    last_seen = member.last_seen_time.ToDatetime(tzinfo=UTC).timestamp()
    return max(0.0, time.time() - last_seen)


def _data(progress: Progress) -> dict[str, Any]:
    if progress.gradients:
        return {"gradients": asdict(progress.gradients)}
    return {
        "replay_rows": progress.replay_rows,
        "replay_capacity_rows": progress.replay_capacity_rows,
        "samples_per_insert": progress.samples_per_insert,
    }


def _as_json(answer: pb.GetRunResponse, progress: Progress) -> dict[str, Any]:
    last = progress.evaluations[-1] if progress.evaluations else None
    return {
        "run_id": progress.run_id,
        "name": progress.name,
        "phase": progress.phase,
        "outcome": progress.outcome,
        "run_dir": progress.run_dir,
        "env_steps": progress.env_steps,
        "learner_steps": progress.learner_steps,
        "weight_version": progress.weight_version,
        **_data(progress),
        "eval_return_mean": last.return_mean if last else None,
        "eval_return_std": last.return_std if last else None,
        "members": [
            {
                "role": ROLES.get(member.role, "?"),
                "index": member.index,
                "host": member.host,
                "pid": member.pid,
                "address": member.address,
                "alive": member.alive,
                "last_seen_seconds": _silence_seconds(member),
                "counters": dict(member.counters),
            }
            for member in answer.members
        ],
    }
