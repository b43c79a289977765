"""The run registry to and from JSON, for a server that is started anew."""

import base64
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from mycelia.experience.v1 import signature_pb2
from mycelia_core.specs import Signature
from mycelia_param_server.members import Identity, Member, Members, Role
from mycelia_param_server.progress import Episode, Evaluation, Progress
from mycelia_param_server.registry import Outcome, Phase, Run

_PLAIN = (
    "run_id",
    "request_id",
    "name",
    "config_json",
    "initial_env_steps",
    "create_time",
    "outcome_detail",
    "train_start_time",
    "finish_time",
    "run_dir",
)
"""The fields of a run that JSON has words for."""


def save_run(run: Run) -> dict[str, Any]:
    """Returns all there is to know about a run, as JSON has it."""
    signature = run.signature.to_proto().SerializeToString() if run.signature else b""
    return {
        **{name: getattr(run, name) for name in _PLAIN},
        "phase": int(run.phase),
        "outcome": int(run.outcome or 0),
        "signature": base64.b64encode(signature).decode(),
        "env_steps": run.members.env_steps,
        "members": [asdict(member) for member in run.members.everyone()],
        "episode_count": run.progress.episode_count,
        "recent_episodes": [asdict(episode) for episode in run.progress.recent_episodes],
        "evaluations": [asdict(evaluation) for evaluation in run.progress.evaluations],
    }


def load_run(saved: Mapping[str, Any], members: Members) -> Run:
    """Returns the run that was saved.

    Args:
      saved: what `save_run` returned.
      members: without any; those of the run are put in, the living ones with a new lease.

    Raises:
      KeyError, TypeError, ValueError: it is something else.
    """
    members.restore([_load_member(member) for member in saved["members"]], saved["env_steps"])
    signature = base64.b64decode(saved["signature"])
    return Run(
        **{name: saved[name] for name in _PLAIN},
        phase=Phase(saved["phase"]),
        outcome=Outcome(saved["outcome"]) if saved["outcome"] else None,
        signature=_load_signature(signature) if signature else None,
        members=members,
        progress=_load_progress(saved),
    )


def _load_signature(data: bytes) -> Signature:
    return Signature.from_proto(signature_pb2.Signature.FromString(data))


def _load_member(saved: Mapping[str, Any]) -> Member:
    identity = {**saved["identity"], "role": Role(saved["identity"]["role"])}
    return Member(**{**saved, "identity": Identity(**identity)})


def _load_progress(saved: Mapping[str, Any]) -> Progress:
    progress = Progress()
    progress.add_episodes(Episode(**episode) for episode in saved["recent_episodes"])
    progress.episode_count = saved["episode_count"]
    for evaluation in saved["evaluations"]:
        returns = tuple(evaluation["episode_returns"])
        restored = Evaluation(**{**evaluation, "episode_returns": returns})
        progress.record(restored, evaluation["record_time"])
    return progress
