"""What becomes of the gradients of a run without replay: what the views show instead of replay."""

import time
from dataclasses import dataclass

from mycelia.params.v1 import params_pb2 as pb
from mycelia_core.clients.run import RunClient
from mycelia_core.metrics import Rate
from mycelia_core.rpc.errors import StatusError

_NOT_APPLIED = {"refused_stale", "late", "duplicate", "skipped"}


@dataclass(frozen=True, kw_only=True, slots=True)
class RoundFigures:
    """How synchronous rounds went, over the whole run."""

    count: int
    per_second: float
    """Of late."""
    mean_seconds: float
    """From the first push until the round closed."""
    stragglers: int
    """Gradients that rounds closed without."""
    workers: int
    """Those that the open round counts on."""


@dataclass(frozen=True, kw_only=True, slots=True)
class GradientFigures:
    """What became of the gradients that workers pushed, over the whole run."""

    updates: int
    """What the optimizer has made of them."""
    applied: int
    applied_per_second: float
    """Of late."""
    stale: int
    """Refused because they were too old, or late for their round."""
    refused: int
    """Malformed, or not finite."""
    scaled: int
    """Applied with a smaller step, because they were old."""
    staleness_mean: float
    """In versions, of all that came in time or late."""
    staleness_max: int
    rounds: RoundFigures | None
    """None if gradients are applied as they come."""


class GradientTracker:
    """Makes figures of every answer of the parameter server; keeps what rates need."""

    def __init__(self, *, in_rounds: bool) -> None:
        """Has seen nothing yet; `in_rounds` if the run is synchronous."""
        self._in_rounds = in_rounds
        self._applied = Rate()
        self._rounds = Rate()
        self._last = pb.GetGradientInfoResponse()

    def update(self, info: pb.GetGradientInfoResponse | None) -> GradientFigures:
        """Returns how it stands; without an answer, as it stood at the last one."""
        if info is not None:
            self._last = info
        last, counts, now = self._last, dict(self._last.push_counts), time.monotonic()
        applied = counts.pop("applied", 0)
        malformed = sum(n for what, n in counts.items() if what not in _NOT_APPLIED)
        return GradientFigures(
            updates=last.update_count,
            applied=applied,
            applied_per_second=max(0.0, self._applied.update(applied, now)),
            stale=counts.get("refused_stale", 0) + counts.get("late", 0),
            refused=malformed + counts.get("skipped", 0),
            scaled=last.scaled_push_count,
            staleness_mean=last.staleness_sum / max(1, sum(last.staleness_counts)),
            staleness_max=last.staleness_max,
            rounds=self._round_figures(now) if self._in_rounds else None,
        )

    def _round_figures(self, now: float) -> RoundFigures:
        last = self._last
        count = sum(last.round_counts)
        return RoundFigures(
            count=count,
            per_second=max(0.0, self._rounds.update(count, now)),
            mean_seconds=last.round_seconds / max(1, count),
            stragglers=last.straggler_count,
            workers=last.worker_count,
        )


def read_gradients(
    client: RunClient, run_id: str, timeout: float
) -> pb.GetGradientInfoResponse | None:
    """Asks the parameter server what became of gradients; None if it does not answer in time."""
    try:
        return client.gradient_info(run_id, timeout=timeout)
    except (StatusError, TimeoutError):
        return None
