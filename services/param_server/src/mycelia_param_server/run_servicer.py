"""Serves the run registry; the contract of each method is written in run.proto."""

from collections.abc import Callable
from typing import Any

import grpc
from google.protobuf.duration_pb2 import Duration
from pydantic import ValidationError

from mycelia.run.v1 import run_pb2 as pb
from mycelia.run.v1 import run_pb2_grpc
from mycelia_core.config import RunConfig
from mycelia_core.rpc.errors import InvalidArgumentError
from mycelia_param_server.registry import Outcome, Run, RunRegistry
from mycelia_param_server.run_messages import (
    check_text,
    enum_from_proto,
    episodes_from_proto,
    evaluation_from_proto,
    identity_from_proto,
    member_to_proto,
    phase_from_proto,
    progress_to_proto,
    run_to_proto,
    signature_from_proto,
)
from mycelia_param_server.weight_store import WeightStore

Context = grpc.aio.ServicerContext[Any, Any]


class RunServicer(run_pb2_grpc.RunServiceServicer):
    """Serves one registry. One event loop owns both, so neither needs a lock."""

    def __init__(
        self, registry: RunRegistry, store: WeightStore, begin: Callable[[Run], None]
    ) -> None:
        """Takes what it serves.

        Args:
          registry: the registry.
          store: whose version it reports.
          begin: called with each new run.
        """
        self._registry = registry
        self._store = store
        self._begin = begin

    async def CreateRun(
        self, request: pb.CreateRunRequest, context: Context
    ) -> pb.CreateRunResponse:
        """Creates the run."""
        _check_config(request.config_json)
        run, is_new = self._registry.create(
            request_id=check_text("request_id", request.request_id),
            name=check_text("name", request.name),
            config_json=request.config_json,
            initial_env_steps=request.initial_env_steps,
        )
        if is_new:
            self._begin(run)
        return pb.CreateRunResponse(run=run_to_proto(run))

    async def GetRun(self, request: pb.GetRunRequest, context: Context) -> pb.GetRunResponse:
        """Describes the run."""
        run = self._registry.find_any(request.run_id)
        return pb.GetRunResponse(
            run=run_to_proto(run),
            members=[member_to_proto(member) for member in run.members],
            progress=progress_to_proto(run.progress, run.env_steps),
            weight_version=self._store.newest.version,
        )

    async def JoinRun(self, request: pb.JoinRunRequest, context: Context) -> pb.JoinRunResponse:
        """Makes the caller a member."""
        run = self._registry.find_any(request.run_id)
        member = self._registry.join(
            run,
            identity_from_proto(request),
            signature=signature_from_proto(request),
            run_dir=check_text("run_dir", request.run_dir),
        )
        lease = Duration()
        lease.FromNanoseconds(int(self._registry.lease_seconds * 1e9))
        return pb.JoinRunResponse(run=run_to_proto(run), index=member.index, lease_duration=lease)

    async def Heartbeat(
        self, request: pb.HeartbeatRequest, context: Context
    ) -> pb.HeartbeatResponse:
        """Renews the caller's lease and takes in its report."""
        run = self._registry.find(request.run_id)
        self._registry.heartbeat(
            run,
            request.instance_id,
            request.sequence,
            counters=request.counters,
            episodes=episodes_from_proto(request.episodes),
            phase=phase_from_proto(request.phase),
        )
        phase = pb.Phase.ValueType(run.phase)
        return pb.HeartbeatResponse(phase=phase, env_steps=run.env_steps)

    async def ReportEvaluation(
        self, request: pb.ReportEvaluationRequest, context: Context
    ) -> pb.ReportEvaluationResponse:
        """Records an evaluation."""
        run = self._registry.find(request.run_id)
        self._registry.record_evaluation(run, evaluation_from_proto(request.evaluation))
        return pb.ReportEvaluationResponse()

    async def FinishRun(
        self, request: pb.FinishRunRequest, context: Context
    ) -> pb.FinishRunResponse:
        """Ends the run."""
        run = self._registry.find(request.run_id)
        outcome = enum_from_proto(Outcome, "outcome", request.outcome)
        self._registry.finish(run, outcome, check_text("detail", request.detail))
        return pb.FinishRunResponse(run=run_to_proto(run))

    async def LeaveRun(self, request: pb.LeaveRunRequest, context: Context) -> pb.LeaveRunResponse:
        """Takes the caller off the list."""
        run = self._registry.find(request.run_id)
        self._registry.leave(run, request.instance_id)
        return pb.LeaveRunResponse()


def _check_config(config_json: str) -> None:
    try:
        RunConfig.model_validate_json(config_json)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"])
        raise InvalidArgumentError(f"config_json: {field or 'JSON'}: {first['msg']}") from error
