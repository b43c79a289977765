"""A process's place in a run, kept by heartbeats from a background thread."""

import logging
import threading
import time
from collections.abc import Mapping
from types import TracebackType
from typing import Self

from mycelia.run.v1 import run_pb2 as pb
from mycelia.run.v1 import run_pb2_grpc
from mycelia_core.clients.failures import translated_errors
from mycelia_core.clients.waiting import Backoff
from mycelia_core.config import RunConfig
from mycelia_core.rpc.errors import (
    FailedPreconditionError,
    InvalidArgumentError,
    NotFoundError,
    StatusError,
)

logger = logging.getLogger(__name__)

HEARTBEAT_SECONDS = 2.0
"""The deadline of one heartbeat."""

LONGEST_INTERVAL_SECONDS = 0.5
"""How far apart heartbeats are at most, while the registry answers."""

LEAVE_SECONDS = 1.0
"""How long leaving waits for each of its steps."""

MAX_EPISODES = 10_000
"""How many episodes one heartbeat reports at most; the rest wait for the next."""


class Membership:
    """A member of a run, from `RunClient.join` to `leave`.

    Any thread may use it; a daemon thread of its own renews the lease and
    reports. While the registry is away, the thread goes on trying and nothing
    reported is lost; what the registry did not acknowledge is sent again under
    the same sequence number, so that it counts once.

    Attributes:
      run: the run as it was on joining.
      run_id: its id.
      registry_address: where the registry is; the weight store is there, too.
      config: its config, validated.
      instance_id: names this member.
      index: counts the members of the role from 0. Stays the same when a lost
        lease is renewed, unless another member has taken the index meanwhile.
      phase: how far the run is, as of the last heartbeat.
      env_steps: the run's environment steps, as of the last heartbeat.
      finished: set when the run has finished or the membership is lost.
      lost: whether the membership ended without the run having finished: the
        registry was away for too long, or no longer knows the run.
    """

    def __init__(
        self,
        stub: run_pb2_grpc.RunServiceStub,
        registry_address: str,
        request: pb.JoinRunRequest,
        joined: pb.JoinRunResponse,
        give_up_seconds: float,
    ) -> None:
        """Starts the heartbeats. Made by `RunClient.join`; not meant to be called directly."""
        self.run = joined.run
        self.run_id = joined.run.run_id
        self.config = RunConfig.model_validate_json(joined.run.config_json)
        self.instance_id = request.instance_id
        self.index = joined.index
        self.phase = joined.run.phase
        self.env_steps = joined.run.initial_env_steps
        self.finished = threading.Event()
        self.lost = False
        self._stub = stub
        self.registry_address = registry_address
        self._request = request
        self._give_up_seconds = give_up_seconds
        self._interval = min(
            joined.lease_duration.ToTimedelta().total_seconds() / 3, LONGEST_INTERVAL_SECONDS
        )
        self._report = _Report()
        self._last_answer = time.monotonic()
        self._answering = True
        self._ended = False
        self._leaving = threading.Event()
        self._wake = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="heartbeat", daemon=True)
        self._thread.start()

    def set_counters(self, counters: Mapping[str, float]) -> None:
        """Sets counters, by glossary name, for the next heartbeat; others keep their value."""
        self._report.set_counters(counters)

    def add_episode(self, episode_return: float, length: int) -> None:
        """Reports a finished training episode: its undiscounted return and its env steps."""
        self._report.add_episode(episode_return, length)

    def set_phase(self, phase: pb.Phase.ValueType) -> None:
        """Reports, from the learner, how far the run is; sent at once."""
        self._report.set_phase(phase)
        self._wake.set()

    def leave(self) -> None:
        """Reports a last time and leaves the run. Does not raise; waits a few seconds at most."""
        if self._leaving.is_set():
            return
        self._leaving.set()
        self._wake.set()
        self._thread.join(LEAVE_SECONDS)
        if self._ended or not self._answering or self._thread.is_alive():
            return
        self._beat(LEAVE_SECONDS)
        if not self._answering:
            return
        request = pb.LeaveRunRequest(run_id=self.run_id, instance_id=self.instance_id)
        try:
            with translated_errors(f"LeaveRun at {self.registry_address}"):
                self._stub.LeaveRun(request, timeout=LEAVE_SECONDS)
        except (StatusError, TimeoutError) as error:
            logger.info("left without saying so: %s", error)

    def __enter__(self) -> Self:
        """Returns itself; the membership has begun already."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Leaves the run."""
        self.leave()

    def _keep(self) -> None:
        try:
            self._beat_until_the_end()
        except Exception as error:
            logger.exception("the heartbeats failed")
            self._lose(repr(error))

    def _beat_until_the_end(self) -> None:
        backoff = Backoff(self._interval, max(self._interval, 2.0))
        while not self._leaving.is_set() and not self._ended:
            self._wake.wait(self._interval if self._answering else backoff.next_seconds())
            self._wake.clear()
            if self._leaving.is_set():
                return
            self._beat()
            if self._answering:
                backoff.reset()

    def _beat(self, timeout: float = HEARTBEAT_SECONDS) -> None:
        request = self._report.next_request(self.run_id, self.instance_id)
        try:
            response = self._send(request, timeout)
        except FailedPreconditionError as error:
            self._lose(str(error))
            return
        except InvalidArgumentError as error:
            # The same report would be refused for ever; dropping it keeps the lease.
            logger.error("the registry refused a report, it is dropped: %s", error)
            self._report.acknowledge()
            return
        except (StatusError, TimeoutError) as error:
            self._note_silence(error)
            return
        self._report.acknowledge()
        self._note_answer(response)

    def _send(self, request: pb.HeartbeatRequest, timeout: float) -> pb.HeartbeatResponse:
        try:
            return self._heartbeat(request, timeout)
        except NotFoundError:
            self._rejoin()
            return self._heartbeat(request, timeout)

    def _heartbeat(self, request: pb.HeartbeatRequest, timeout: float) -> pb.HeartbeatResponse:
        with translated_errors(f"Heartbeat at {self.registry_address}"):
            return self._stub.Heartbeat(request, timeout=timeout)

    def _rejoin(self) -> None:
        with translated_errors(f"JoinRun at {self.registry_address}"):
            joined = self._stub.JoinRun(self._request, timeout=HEARTBEAT_SECONDS)
        logger.warning("the lease had ended; joined again, with index %d", joined.index)
        self.index = joined.index

    def _note_answer(self, response: pb.HeartbeatResponse) -> None:
        if not self._answering:
            logger.info("the registry at %s answers again", self.registry_address)
        self._answering = True
        self._last_answer = time.monotonic()
        self.phase = response.phase
        self.env_steps = response.env_steps
        if response.phase == pb.PHASE_FINISHED:
            self.finished.set()

    def _note_silence(self, error: Exception) -> None:
        if self._answering and not self._leaving.is_set():
            logger.warning("the registry does not answer, trying on: %s", error)
        self._answering = False
        silence = time.monotonic() - self._last_answer
        if silence > self._give_up_seconds:
            self._lose(f"no answer for {silence:.0f} s: {error}")

    def _lose(self, reason: str) -> None:
        self._ended = True
        if self.finished.is_set() or self._leaving.is_set():
            # Nothing is lost: the run was over, or the member was on its way out.
            return
        logger.error("lost the membership of run %s: %s", self.run_id, reason)
        self.lost = True
        self.finished.set()


class _Report:
    """What a member has to report, and what of it the registry has acknowledged."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counters: dict[str, float] = {}
        self._phase = pb.PHASE_UNSPECIFIED
        self._episodes: list[pb.Episode] = []
        self._sequence = 1
        self._offered = 0
        """How many episodes the unacknowledged sequence number stands for; 0 for none yet."""

    def set_counters(self, counters: Mapping[str, float]) -> None:
        with self._lock:
            self._counters.update(counters)

    def add_episode(self, episode_return: float, length: int) -> None:
        with self._lock:
            self._episodes.append(pb.Episode(episode_return=episode_return, length=length))

    def set_phase(self, phase: pb.Phase.ValueType) -> None:
        with self._lock:
            self._phase = phase

    def next_request(self, run_id: str, instance_id: str) -> pb.HeartbeatRequest:
        """Returns what to send; the same episodes until they are acknowledged."""
        with self._lock:
            self._offered = self._offered or min(len(self._episodes), MAX_EPISODES)
            return pb.HeartbeatRequest(
                run_id=run_id,
                instance_id=instance_id,
                sequence=self._sequence,
                counters=self._counters,
                episodes=self._episodes[: self._offered],
                phase=self._phase,
            )

    def acknowledge(self) -> None:
        """Forgets the episodes that were sent, and goes on to the next sequence number."""
        with self._lock:
            del self._episodes[: self._offered]
            self._offered = 0
            self._sequence += 1
