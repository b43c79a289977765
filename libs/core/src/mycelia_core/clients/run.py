"""The client of the run registry."""

import os
import socket
import threading
import time
import uuid
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from mycelia.params.v1 import params_pb2, params_pb2_grpc
from mycelia.run.v1 import run_pb2 as pb
from mycelia.run.v1 import run_pb2_grpc
from mycelia_core.clients.failures import translated_errors
from mycelia_core.clients.membership import Membership
from mycelia_core.clients.waiting import NotYetError, StoppedError, poll
from mycelia_core.rpc.channel import open_channel
from mycelia_core.rpc.errors import FailedPreconditionError, UnavailableError
from mycelia_core.specs import Signature

__all__ = ["Membership", "RunClient", "RunFinishedError", "StoppedError"]

CALL_SECONDS = 5.0
"""The deadline of a call that nobody polls with."""

POLL_SECONDS = 2.0
"""The deadline of one attempt inside a wait, and of a heartbeat."""


class RunFinishedError(FailedPreconditionError):
    """The run has finished: there is nothing left to take part in."""


class RunClient:
    """Talks to one run registry. Any thread may use it.

    Errors: each method raises the `StatusError` that the server meant
    (`UnavailableError` if it cannot be reached), and `TimeoutError` when a
    deadline passes.
    """

    def __init__(self, address: str) -> None:
        """Opens a channel; whether anybody answers shows with the first call."""
        self.address = address
        self._channel = open_channel(address)
        self._stub = run_pb2_grpc.RunServiceStub(self._channel)
        self._params = params_pb2_grpc.ParamServiceStub(self._channel)
        self._run_id = ""

    def create_run(
        self,
        name: str,
        config_json: str,
        initial_env_steps: int = 0,
        request_id: str | None = None,
    ) -> pb.Run:
        """Creates the run; with the same `request_id` again, returns the same one."""
        request = pb.CreateRunRequest(
            request_id=request_id or str(uuid.uuid4()),
            name=name,
            config_json=config_json,
            initial_env_steps=initial_env_steps,
        )
        with translated_errors(f"CreateRun at {self.address}"):
            run = self._stub.CreateRun(request, timeout=CALL_SECONDS).run
        self._run_id = run.run_id
        return run

    def get_run(self, run_id: str = "", *, timeout: float = CALL_SECONDS) -> pb.GetRunResponse:
        """Describes the run, its members and its progress; any run if no id is given."""
        with translated_errors(f"GetRun at {self.address}"):
            return self._stub.GetRun(pb.GetRunRequest(run_id=run_id), timeout=timeout)

    def gradient_info(
        self, run_id: str, *, timeout: float = CALL_SECONDS
    ) -> params_pb2.GetGradientInfoResponse:
        """Describes what has become of the gradients that the registry's server applies."""
        request = params_pb2.GetGradientInfoRequest(run_id=run_id)
        with translated_errors(f"GetGradientInfo at {self.address}"):
            return self._params.GetGradientInfo(request, timeout=timeout)

    def join(
        self,
        role: pb.Role.ValueType,
        *,
        address: str = "",
        signature: Signature | None = None,
        run_dir: str = "",
        instance_id: str | None = None,
        wait_seconds: float = 120.0,
        give_up_seconds: float = 60.0,
        stop: threading.Event | None = None,
    ) -> Membership:
        """Becomes a member, waiting for the server and for the run to exist.

        Args:
          role: what the caller does in the run.
          address: where others reach the caller; empty if it serves nothing.
          signature: from actors, what their rows are made of.
          run_dir: from the learner, where it writes the run's files.
          instance_id: names the caller; a new one if not given.
          wait_seconds: how long to wait for server and run.
          give_up_seconds: how long the registry may be away before the
            membership counts as lost.
          stop: ends the wait when it is set.

        Raises:
          RunFinishedError: there is nothing left to take part in.
          FailedPreconditionError: the run has another signature.
          TimeoutError: server or run did not come in time.
          StoppedError: `stop` was set.
        """
        request = pb.JoinRunRequest(
            instance_id=instance_id or str(uuid.uuid4()),
            role=role,
            address=address,
            host=socket.gethostname(),
            pid=os.getpid(),
            signature=signature.to_proto() if signature else None,
            run_dir=run_dir,
        )
        deadline = time.monotonic() + wait_seconds
        run = self.wait_for_run(wait_seconds, stop)
        self._run_id = request.run_id = run.run_id
        joined = poll(
            lambda: self._try_to_join(request),
            waiting_for=f"an answer of the registry at {self.address}",
            timeout=deadline - time.monotonic(),
            stop=stop,
        )
        return Membership(self._stub, self.address, request, joined, give_up_seconds)

    def report_evaluation(
        self,
        *,
        policy_version: int,
        learner_step: int,
        env_steps: int,
        episode_returns: Sequence[float],
    ) -> None:
        """Records a greedy evaluation; a second report for a version changes nothing."""
        evaluation = pb.Evaluation(
            policy_version=policy_version,
            learner_step=learner_step,
            env_steps=env_steps,
            episode_returns=episode_returns,
        )
        request = pb.ReportEvaluationRequest(run_id=self._find_run_id(), evaluation=evaluation)
        with translated_errors(f"ReportEvaluation at {self.address}"):
            self._stub.ReportEvaluation(request, timeout=CALL_SECONDS)

    def finish_run(self, outcome: pb.Outcome.ValueType, detail: str = "") -> pb.Run:
        """Ends the run and returns it as it ended; the first outcome stays."""
        request = pb.FinishRunRequest(run_id=self._find_run_id(), outcome=outcome, detail=detail)
        with translated_errors(f"FinishRun at {self.address}"):
            return self._stub.FinishRun(request, timeout=CALL_SECONDS).run

    def wait_for_run(self, timeout: float, stop: threading.Event | None = None) -> pb.Run:
        """Waits for the server to answer and for a run to exist.

        Raises:
          RunFinishedError: there is nothing left to take part in.
          TimeoutError: server or run did not come in time.
          StoppedError: `stop` was set.
        """

        def find() -> pb.Run:
            try:
                run = self.get_run(timeout=POLL_SECONDS).run
            except (UnavailableError, FailedPreconditionError, TimeoutError) as error:
                # A GetRun that names no run fails its precondition only if there is none yet.
                raise NotYetError(str(error)) from error
            _refuse_finished(run)
            return run

        return poll(find, waiting_for=f"a run at {self.address}", timeout=timeout, stop=stop)

    def wait_for_member(
        self, role: pb.Role.ValueType, timeout: float, stop: threading.Event | None = None
    ) -> pb.Member:
        """Waits for a living member of a role that has an address.

        Raises:
          TimeoutError: none came in time.
          StoppedError: `stop` was set.
          RunFinishedError: the run has finished meanwhile.
          FailedPreconditionError: the server holds another run.
        """
        name = pb.Role.Name(role).removeprefix("ROLE_").lower()

        def find() -> pb.Member:
            members = self._poll_run().members
            for member in members:
                if member.role == role and member.alive and member.address:
                    return member
            raise NotYetError(
                f"{len(members)} members, none of them a living {name} with an address"
            )

        return poll(find, waiting_for=f"a {name} to join", timeout=timeout, stop=stop)

    def wait_for_signature(self, timeout: float, stop: threading.Event | None = None) -> Signature:
        """Waits for the first actor to bring the run's signature.

        Raises:
          TimeoutError: no actor came in time.
          StoppedError: `stop` was set.
          RunFinishedError: the run has finished meanwhile.
          FailedPreconditionError: the server holds another run.
        """

        def find() -> Signature:
            run = self._poll_run().run
            if not run.HasField("signature"):
                raise NotYetError("no actor has joined")
            return Signature.from_proto(run.signature)

        return poll(find, waiting_for="the run's signature", timeout=timeout, stop=stop)

    def close(self) -> None:
        """Closes the channel. Memberships must have been left before."""
        self._channel.close()

    def __enter__(self) -> Self:
        """Returns itself; the channel is open already."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Closes the channel."""
        self.close()

    def _try_to_join(self, request: pb.JoinRunRequest) -> pb.JoinRunResponse:
        try:
            with translated_errors(f"JoinRun at {self.address}"):
                return self._stub.JoinRun(request, timeout=POLL_SECONDS)
        except (UnavailableError, TimeoutError) as error:
            raise NotYetError(str(error)) from error

    def _poll_run(self) -> pb.GetRunResponse:
        try:
            response = self.get_run(self._run_id, timeout=POLL_SECONDS)
        except (UnavailableError, TimeoutError) as error:
            raise NotYetError(str(error)) from error
        _refuse_finished(response.run)
        return response

    def _find_run_id(self) -> str:
        if not self._run_id:
            self._run_id = self.get_run().run.run_id
        return self._run_id


def _refuse_finished(run: pb.Run) -> None:
    if run.phase == pb.PHASE_FINISHED:
        outcome = pb.Outcome.Name(run.outcome)
        raise RunFinishedError(f"run {run.run_id} has finished: {outcome}")
