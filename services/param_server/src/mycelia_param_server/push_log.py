"""Remembers each worker's last push, so that one that is sent again is applied once."""

import asyncio
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum

MAX_WORKERS = 10_000
"""How many workers are remembered; the ones longest silent are forgotten."""


class Outcome(IntEnum):
    """What became of a push; the numbers are the protocol's."""

    APPLIED = 1
    REFUSED_STALE = 2
    LATE = 3
    DUPLICATE = 4
    SKIPPED = 5


@dataclass(frozen=True)
class Answer:
    """What a worker is told of its push, beside the newest weights."""

    outcome: Outcome
    staleness: int = 0
    metrics: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class LoggedPush:
    """A worker's last push."""

    sequence: int
    answer: asyncio.Task[Answer] | None
    """Pending until the push is applied or not; None for one from before a restart."""


class PushLog:
    """The last push of each worker. One event loop owns it."""

    def __init__(self, sequences: Mapping[str, int] | None = None) -> None:
        """Starts empty, or with the sequence numbers of a checkpoint."""
        self._pushes: OrderedDict[str, LoggedPush] = OrderedDict(
            (worker, LoggedPush(sequence, None)) for worker, sequence in (sequences or {}).items()
        )

    def __iter__(self) -> Iterator[tuple[str, int]]:
        """Iterates over the pushes that are over: worker and sequence number."""
        for worker, push in self._pushes.items():
            if push.answer is None or push.answer.done():
                yield worker, push.sequence

    def note(self, worker_id: str, sequence: int, answer: asyncio.Task[Answer]) -> None:
        """Remembers a push that is being taken in."""
        self._pushes[worker_id] = LoggedPush(sequence, answer)
        self._pushes.move_to_end(worker_id)
        if len(self._pushes) > MAX_WORKERS:
            self._pushes.popitem(last=False)

    async def find_repeat(self, worker_id: str, sequence: int) -> Answer | None:
        """Returns the answer to a push that has come before; None if it has not.

        Waits with the first one, if that is still being taken in, for its answer.
        """
        push = self._pushes.get(worker_id)
        if push is None or sequence > push.sequence:
            return None
        if push.answer is None or sequence < push.sequence:
            return Answer(Outcome.DUPLICATE)
        if not push.answer.done():
            return await asyncio.shield(push.answer)
        return replace(push.answer.result(), outcome=Outcome.DUPLICATE)
