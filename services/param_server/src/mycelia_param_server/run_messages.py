"""Protobuf messages of the run registry to and from what the registry works with."""

from collections.abc import Iterable
from enum import IntEnum
from typing import TypeVar

from google.protobuf.timestamp_pb2 import Timestamp

from mycelia.run.v1 import run_pb2 as pb
from mycelia_core.rpc.errors import InvalidArgumentError
from mycelia_core.specs import Signature
from mycelia_param_server.members import Identity, Member, Role
from mycelia_param_server.progress import Episode, Evaluation, Progress
from mycelia_param_server.registry import Phase, Run

E = TypeVar("E", bound=IntEnum)

MAX_TEXT = 4_096
"""The longest name, address or detail, in characters."""


def check_text(field: str, text: str) -> str:
    """Returns the text; `InvalidArgumentError` if it is longer than a name may be."""
    if len(text) > MAX_TEXT:
        raise InvalidArgumentError(
            f"{field}: got {len(text)} characters, expected {MAX_TEXT} at most"
        )
    return text


def enum_from_proto(kind: type[E], field: str, value: int) -> E:
    """Returns the enum member of a number from the wire.

    Raises:
      InvalidArgumentError: it is unspecified or unknown.
    """
    try:
        return kind(value)
    except ValueError:
        names = ", ".join(member.name for member in kind)
        raise InvalidArgumentError(f"{field}: got {value}, expected one of {names}") from None


def phase_from_proto(value: int) -> Phase | None:
    """Returns the phase that a heartbeat reports; None for no change."""
    return enum_from_proto(Phase, "phase", value) if value else None


def identity_from_proto(request: pb.JoinRunRequest) -> Identity:
    """Returns who asks to join; `InvalidArgumentError` if the role is not set."""
    return Identity(
        instance_id=check_text("instance_id", request.instance_id),
        role=enum_from_proto(Role, "role", request.role),
        address=check_text("address", request.address),
        host=check_text("host", request.host),
        pid=request.pid,
    )


def signature_from_proto(request: pb.JoinRunRequest) -> Signature | None:
    """Returns the signature that the caller brings; `InvalidArgumentError` if it is malformed."""
    return Signature.from_proto(request.signature) if request.HasField("signature") else None


def episodes_from_proto(episodes: Iterable[pb.Episode]) -> list[Episode]:
    """Returns the episodes of a heartbeat."""
    return [Episode(episode.episode_return, episode.length) for episode in episodes]


def evaluation_from_proto(evaluation: pb.Evaluation) -> Evaluation:
    """Returns a reported evaluation."""
    return Evaluation(
        policy_version=evaluation.policy_version,
        learner_step=evaluation.learner_step,
        env_steps=evaluation.env_steps,
        episode_returns=tuple(evaluation.episode_returns),
    )


def run_to_proto(run: Run) -> pb.Run:
    """Describes a run."""
    return pb.Run(
        run_id=run.run_id,
        name=run.name,
        config_json=run.config_json,
        signature=run.signature.to_proto() if run.signature else None,
        phase=pb.Phase.ValueType(run.phase),
        outcome=pb.Outcome.ValueType(run.outcome or 0),
        outcome_detail=run.outcome_detail,
        create_time=_timestamp(run.create_time),
        train_start_time=_timestamp(run.train_start_time),
        finish_time=_timestamp(run.finish_time),
        initial_env_steps=run.initial_env_steps,
        run_dir=run.run_dir,
    )


def member_to_proto(member: Member) -> pb.Member:
    """Describes a member."""
    return pb.Member(
        instance_id=member.identity.instance_id,
        role=pb.Role.ValueType(member.identity.role),
        index=member.index,
        address=member.identity.address,
        host=member.identity.host,
        pid=member.identity.pid,
        last_seen_time=_timestamp(member.last_seen_time),
        alive=member.alive,
        counters=member.counters,
    )


def progress_to_proto(progress: Progress, env_steps: int) -> pb.Progress:
    """Describes how a run is doing."""
    return pb.Progress(
        env_steps=env_steps,
        episode_count=progress.episode_count,
        recent_episodes=[
            pb.Episode(episode_return=episode.episode_return, length=episode.length)
            for episode in progress.recent_episodes
        ],
        evaluations=[
            pb.Evaluation(
                policy_version=evaluation.policy_version,
                learner_step=evaluation.learner_step,
                env_steps=evaluation.env_steps,
                episode_returns=evaluation.episode_returns,
                record_time=_timestamp(evaluation.record_time),
            )
            for evaluation in progress.evaluations
        ],
    )


def _timestamp(seconds: float | None) -> Timestamp | None:
    if seconds is None:
        return None
    timestamp = Timestamp()
    timestamp.FromNanoseconds(int(seconds * 1e9))
    return timestamp
