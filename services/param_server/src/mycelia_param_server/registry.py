"""The run registry: the one run of this server, its members and its progress."""

import logging
import secrets
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum

from mycelia_core.rpc.errors import (
    AlreadyExistsError,
    FailedPreconditionError,
    InvalidArgumentError,
)
from mycelia_core.specs import Signature
from mycelia_param_server.members import MAX_TOTAL, Identity, Member, Members, Role
from mycelia_param_server.progress import Episode, Evaluation, Progress, check_episodes

logger = logging.getLogger(__name__)


class Phase(IntEnum):
    """How far the run is; the numbers are the protocol's. It only goes forward."""

    STARTING = 1
    COLLECTING = 2
    TRAINING = 3
    FINISHED = 4


class Outcome(IntEnum):
    """Why a run ended; the numbers are the protocol's."""

    SOLVED = 1
    STEP_LIMIT = 2
    STOPPED = 3
    FAILED = 4


@dataclass(kw_only=True)
class Run:
    """One run. Times are in seconds since 1970, None for what has not happened."""

    run_id: str
    request_id: str
    name: str
    config_json: str
    initial_env_steps: int
    create_time: float
    members: Members
    progress: Progress
    signature: Signature | None = None
    phase: Phase = Phase.STARTING
    outcome: Outcome | None = None
    outcome_detail: str = ""
    train_start_time: float | None = None
    finish_time: float | None = None
    run_dir: str = ""

    @property
    def env_steps(self) -> int:
        """Environment steps of all actors, those from before a resume included."""
        return self.initial_env_steps + self.members.env_steps


class RunRegistry:
    """Holds one run at a time. One event loop owns it; the clocks are injected."""

    def __init__(
        self,
        lease_seconds: float = 10.0,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        """Starts without a run.

        Args:
          lease_seconds: how long a membership lasts without a heartbeat.
          clock: monotonic seconds, for leases.
          wall_clock: seconds since 1970, for people.
        """
        self.lease_seconds = lease_seconds
        self._clock = clock
        self._wall_clock = wall_clock
        self._run: Run | None = None
        self.revision = 0
        """Changes with who takes part and how far the run is; not with counters and episodes."""

    @property
    def run(self) -> Run | None:
        """The run, if there is one."""
        return self._run

    def create(
        self, *, request_id: str, name: str, config_json: str, initial_env_steps: int = 0
    ) -> tuple[Run, bool]:
        """Creates a run in place of one that has finished, if any.

        Returns:
          the run, and whether it is new; it is not if `request_id` has made it before.

        Raises:
          InvalidArgumentError: a required field is not set, or the steps are negative.
          AlreadyExistsError: another run goes on.
        """
        if not request_id or not name:
            raise InvalidArgumentError("request_id and name are required")
        if not 0 <= initial_env_steps <= MAX_TOTAL:
            raise InvalidArgumentError(
                f"initial_env_steps: got {initial_env_steps}, expected 0 to 2^53"
            )
        run = self._run
        if run and run.request_id == request_id:
            return run, False
        if run and run.phase is not Phase.FINISHED:
            raise AlreadyExistsError(f"run {run.run_id} ({run.name}) is here and has not finished")
        self._run = Run(
            run_id=secrets.token_hex(6),
            request_id=request_id,
            name=name,
            config_json=config_json,
            initial_env_steps=initial_env_steps,
            create_time=self._wall_clock(),
            members=self.make_members(),
            progress=Progress(),
        )
        self.revision += 1
        logger.info("run %s (%s) created", self._run.run_id, name)
        return self._run, True

    def make_members(self) -> Members:
        """Returns the members of a run that nobody has joined."""
        return Members(self.lease_seconds, self._clock, self._wall_clock)

    def restore(self, run: Run) -> None:
        """Takes over the run of a server that this one replaces."""
        self._run = run

    def find(self, run_id: str) -> Run:
        """Returns the run of that id, with the leases that have run out ended.

        Raises:
          FailedPreconditionError: there is no run, or it has another id.
        """
        run = self._run
        if run is None:
            raise FailedPreconditionError("this server has no run yet")
        if run_id != run.run_id:
            raise FailedPreconditionError(
                f"run_id: got {run_id!r}, this server's run is {run.run_id!r}"
            )
        run.members.expire()
        return run

    def find_any(self, run_id: str) -> Run:
        """Returns the run of that id, or whichever there is if `run_id` is empty."""
        return self.find(run_id or (self._run.run_id if self._run else ""))

    def join(
        self, run: Run, identity: Identity, signature: Signature | None = None, run_dir: str = ""
    ) -> Member:
        """Makes somebody a member; the first actor's signature becomes the run's.

        Raises:
          FailedPreconditionError: the run has finished, or `signature` is not its.
          InvalidArgumentError: `instance_id` is not set or is a member's of another role.
        """
        if not identity.instance_id:
            raise InvalidArgumentError("instance_id is required")
        if run.phase is Phase.FINISHED:
            raise FailedPreconditionError(f"run {run.run_id} has finished")
        difference = run.signature.difference(signature) if run.signature and signature else None
        if difference:
            raise FailedPreconditionError(f"signature: the run's differs from yours, {difference}")
        member = run.members.join(identity)
        if identity.role is Role.ACTOR and run.signature is None:
            run.signature = signature
        if identity.role is Role.LEARNER and run_dir:
            run.run_dir = run_dir
        self.revision += 1
        return member

    def leave(self, run: Run, instance_id: str) -> None:
        """Takes somebody off the list; nothing happens if it is not on it."""
        run.members.leave(instance_id)
        self.revision += 1

    def heartbeat(
        self,
        run: Run,
        instance_id: str,
        sequence: int,
        *,
        counters: Mapping[str, float],
        episodes: Iterable[Episode] = (),
        phase: Phase | None = None,
    ) -> None:
        """Renews a lease and takes in a report; episodes sent again count once.

        Raises:
          NotFoundError: the lease has ended, and the run has not.
          InvalidArgumentError: a value is out of its range; nothing is taken in.
        """
        if sequence < 1:
            raise InvalidArgumentError(f"sequence: got {sequence}, expected 1 or more")
        episodes = tuple(episodes)
        check_episodes(episodes)
        member = run.members.find(instance_id)
        _check_phase(phase, member)
        if run.phase is Phase.FINISHED and (member is None or not member.alive):
            # All that is left to tell it is that the run is over.
            return
        if run.members.heartbeat(instance_id, sequence, counters):
            run.progress.add_episodes(episodes)
        if phase and phase > run.phase:
            self._advance(run, phase)
        if member and member.identity.role is Role.LEARNER:
            self._note_first_learner_step(run, counters)

    def record_evaluation(self, run: Run, evaluation: Evaluation) -> None:
        """Takes in a greedy evaluation; a second one of the same version changes nothing."""
        run.progress.record(evaluation, self._wall_clock())
        self.revision += 1

    def finish(self, run: Run, outcome: Outcome, detail: str = "") -> None:
        """Ends the run; the first outcome stays."""
        if run.phase is Phase.FINISHED:
            return
        run.outcome, run.outcome_detail = outcome, detail
        run.finish_time = self._wall_clock()
        self._advance(run, Phase.FINISHED)
        logger.info("run %s finished: %s %s", run.run_id, outcome.name, detail)

    @property
    def is_over(self) -> bool:
        """Whether the run has finished, and nobody is left of its members."""
        run = self._run
        if run is None or run.phase is not Phase.FINISHED:
            return False
        run.members.expire()
        return not any(member.alive for member in run.members)

    def expire(self) -> None:
        """Ends leases that have run out, so that the log says so in time."""
        if self._run:
            self._run.members.expire()

    def _advance(self, run: Run, phase: Phase) -> None:
        logger.info("run %s: %s", run.run_id, phase.name)
        run.phase = phase
        self.revision += 1

    def _note_first_learner_step(self, run: Run, counters: Mapping[str, float]) -> None:
        if run.train_start_time is None and counters.get("learner_steps", 0) > 0:
            run.train_start_time = self._wall_clock()


def _check_phase(phase: Phase | None, member: Member | None) -> None:
    if phase is Phase.FINISHED:
        raise InvalidArgumentError("phase: got FINISHED; a run is ended with FinishRun")
    if phase and member and member.identity.role is not Role.LEARNER:
        raise InvalidArgumentError(f"phase: got {phase.name} from {member}, only a learner sets it")
