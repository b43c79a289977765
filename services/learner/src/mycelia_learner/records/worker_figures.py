"""The workers' figures, by glossary name: what a learner would have measured itself."""

import statistics

from mycelia.run.v1 import run_pb2 as pb

TOTALS = frozenset(
    {"pushed_gradients", "applied_gradients", "dropped_gradients", "refused_gradients"}
)
"""Counters that are summed over workers; all others are averaged."""

_OWN = frozenset({"env_steps", "env_steps_per_second", "episodes", "policy_version", "epsilon"})
"""Counters that say nothing about the gradients."""


class WorkerFigures:
    """Sums up what workers report with their heartbeats. One thread observes, any may read.

    Attributes:
      figures: as last observed.
    """

    def __init__(self) -> None:
        """Has seen nothing yet."""
        self.figures: dict[str, float] = {}

    def observe(self, response: pb.GetRunResponse) -> None:
        """Takes in how the run is doing."""
        gathered: dict[str, list[float]] = {}
        for member in response.members:
            if member.role == pb.ROLE_ACTOR and member.alive:
                for name, value in member.counters.items():
                    if name not in _OWN:
                        gathered.setdefault(name, []).append(value)
        self.figures = {
            name: sum(values) if name in TOTALS else statistics.fmean(values)
            for name, values in gathered.items()
        }
