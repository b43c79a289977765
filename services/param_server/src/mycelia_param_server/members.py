"""Who takes part in a run: leases, indices, and counters that outlive their member."""

import logging
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum

from mycelia_core.rpc.errors import InvalidArgumentError, NotFoundError

logger = logging.getLogger(__name__)

MAX_GONE_MEMBERS = 200
"""How many members whose lease has ended are remembered one by one."""

MAX_COUNTERS = 256
"""How many counters one member may report."""

TOTALS = ("env_steps", "learner_steps")
"""Counters that are added up or compared, and so must be numbers."""

MAX_TOTAL = 2**53
"""Up to here a double counts exactly."""


class Role(IntEnum):
    """What a member does in the run; the numbers are the protocol's."""

    ACTOR = 1
    REPLAY = 2
    LEARNER = 3
    EVALUATOR = 4
    PARAM_SHARD = 5
    INFERENCE = 6


@dataclass(frozen=True, kw_only=True)
class Identity:
    """What a member says about itself on joining."""

    instance_id: str
    role: Role
    address: str = ""
    host: str = ""
    pid: int = 0


@dataclass(kw_only=True)
class Member:
    """Somebody who takes part, or has."""

    identity: Identity
    index: int
    lease_end: float
    """On the members' clock, in seconds."""

    last_seen_time: float
    """In seconds since 1970."""

    alive: bool = True
    left: bool = False
    """Whether it took leave. Its counters still count."""

    sequence: int = 0
    """The last heartbeat taken in."""

    counters: dict[str, float] = field(default_factory=dict)
    env_steps: int = 0
    """The most that it has reported."""

    def __str__(self) -> str:
        """Reads `actor 3 (host a, pid 17)`."""
        who = self.identity
        return f"{who.role.name.lower()} {self.index} (host {who.host}, pid {who.pid})"


class Members:
    """The members of one run. One event loop owns it; both clocks are injected."""

    def __init__(
        self, lease_seconds: float, clock: Callable[[], float], wall_clock: Callable[[], float]
    ) -> None:
        """Starts without members.

        Args:
          lease_seconds: how long a membership lasts without a heartbeat.
          clock: monotonic seconds, for leases.
          wall_clock: seconds since 1970, for people.
        """
        self._lease_seconds = lease_seconds
        self._clock = clock
        self._wall_clock = wall_clock
        self._members: dict[str, Member] = {}
        self._next_lease_end = math.inf
        """Before this, on the clock, no lease ends."""

        self.env_steps = 0
        """The environment steps of all actors that there have been."""

    def __iter__(self) -> Iterator[Member]:
        """Iterates over the members, those whose lease has ended included."""
        return (member for member in self._members.values() if not member.left)

    def everyone(self) -> list[Member]:
        """Returns the members, those that took leave included."""
        return list(self._members.values())

    def restore(self, members: Iterable[Member], env_steps: int) -> None:
        """Takes over the members of a server that this one replaces, with new leases."""
        for member in members:
            self._members[member.identity.instance_id] = member
            if member.alive:
                self._renew(member)
        self.env_steps = env_steps

    def join(self, identity: Identity) -> Member:
        """Makes somebody a member, or renews the membership it has.

        Who comes back gets the index it had, unless another has taken it
        meanwhile; everybody else the lowest one that no living member holds.

        Raises:
          InvalidArgumentError: `instance_id` is a member's of another role.
        """
        member = self._members.get(identity.instance_id)
        if member is None:
            member = Member(
                identity=identity,
                index=self._lowest_free_index(identity.role),
                lease_end=0.0,
                last_seen_time=0.0,
            )
            self._members[identity.instance_id] = member
        elif member.identity.role != identity.role:
            raise InvalidArgumentError(
                f"role: got {identity.role.name}, instance {identity.instance_id} has joined "
                f"as {member.identity.role.name}"
            )
        elif not member.alive and self._is_taken(identity.role, member.index):
            member.index = self._lowest_free_index(identity.role)
        is_news = not member.alive or not member.last_seen_time
        member.identity, member.alive, member.left = identity, True, False
        self._renew(member)
        if is_news:
            logger.info("%s joined", member)
        self._forget_the_longest_gone()
        return member

    def heartbeat(self, instance_id: str, sequence: int, counters: Mapping[str, float]) -> bool:
        """Renews a lease and takes in counters.

        Returns:
          whether the heartbeat is new; False if its sequence number, or a later
          one, has been taken in before.

        Raises:
          NotFoundError: the lease has ended.
          InvalidArgumentError: a total is not a number from 0 up, or there are too many counters.
        """
        _check_counters(counters)
        member = self._members.get(instance_id)
        if member is None or not member.alive:
            raise NotFoundError(f"instance_id: {instance_id!r} has no lease; join (again)")
        self._renew(member)
        is_new = sequence > member.sequence
        if sequence >= member.sequence:
            member.counters = dict(counters)
            member.sequence = sequence
            self._count_env_steps(member)
        return is_new

    def leave(self, instance_id: str) -> None:
        """Takes somebody off the list; nothing happens if it is not on it."""
        member = self._members.get(instance_id)
        if member and not member.left:
            member.alive, member.left = False, True
            logger.info("%s left", member)

    def expire(self) -> list[Member]:
        """Ends the leases that have run out, and returns whose they were."""
        now = self._clock()
        if now < self._next_lease_end:
            return []
        lost = [m for m in self._members.values() if m.alive and m.lease_end <= now]
        for member in lost:
            member.alive = False
            silence = self._wall_clock() - member.last_seen_time
            logger.warning("%s lost its lease: last seen %.1f s ago", member, silence)
        living = (m.lease_end for m in self._members.values() if m.alive)
        self._next_lease_end = min(living, default=math.inf)
        return lost

    def find(self, instance_id: str) -> Member | None:
        """Returns the member of that name, gone or not; None if there never was one."""
        return self._members.get(instance_id)

    def is_gone(self, instance_id: str) -> bool:
        """Whether somebody was a member and is no longer; not for who has never been one."""
        member = self._members.get(instance_id)
        return member is not None and not member.alive

    def _renew(self, member: Member) -> None:
        member.lease_end = self._clock() + self._lease_seconds
        member.last_seen_time = self._wall_clock()
        self._next_lease_end = min(self._next_lease_end, member.lease_end)

    def _count_env_steps(self, member: Member) -> None:
        reported = int(member.counters.get("env_steps", 0))
        if member.identity.role is Role.ACTOR and reported > member.env_steps:
            self.env_steps += reported - member.env_steps
            member.env_steps = reported

    def _living_indices(self, role: Role) -> set[int]:
        return {m.index for m in self._members.values() if m.alive and m.identity.role is role}

    def _is_taken(self, role: Role, index: int) -> bool:
        return index in self._living_indices(role)

    def _lowest_free_index(self, role: Role) -> int:
        taken = self._living_indices(role)
        return next(index for index in range(len(taken) + 1) if index not in taken)

    def _forget_the_longest_gone(self) -> None:
        gone = sorted(
            (m for m in self._members.values() if not m.alive), key=lambda m: m.last_seen_time
        )
        for member in gone[: max(0, len(gone) - MAX_GONE_MEMBERS)]:
            del self._members[member.identity.instance_id]


def _check_counters(counters: Mapping[str, float]) -> None:
    if len(counters) > MAX_COUNTERS:
        raise InvalidArgumentError(
            f"counters: got {len(counters)}, expected {MAX_COUNTERS} at most"
        )
    for name in TOTALS:
        value = counters.get(name, 0.0)
        # Not `value < 0 or value > ...`: that would let NaN pass.
        if not 0 <= value <= MAX_TOTAL:
            raise InvalidArgumentError(f"counters: {name} must be in [0, 2^53], got {value}")
