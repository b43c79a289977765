"""What the parameter server, and each of its shards, exports to Prometheus."""

from collections.abc import Iterator, Mapping

from mycelia.params.v1 import params_pb2 as pb
from mycelia_core.rpc.errors import FailedPreconditionError
from mycelia_core.rpc.metrics import HistogramReading, Reading, Readings
from mycelia_param_server.gradient_service import describe
from mycelia_param_server.registry import RunRegistry
from mycelia_param_server.shard_service import ShardService
from mycelia_param_server.trainer import Trainer
from mycelia_param_server.weight_store import WeightStore

_TOTALS = {
    "update_count": "gradient_updates",
    "scaled_push_count": "gradient_scaled_pushes",
    "straggler_count": "round_stragglers",
    "optimizer_seconds": "gradient_optimizer_seconds",
    "other_seconds": "gradient_other_seconds",
}
_GAUGES = {
    "worker_count": "round_workers",
    "learning_rate": "gradient_learning_rate",
    "gradient_norm": "gradient_norm",
}
_OUTCOMES = ("applied", "refused_stale", "late", "duplicate", "skipped")
"""Exported from the start; what is wrong with a push, when it happens first."""


def member_readings(registry: RunRegistry) -> Iterator[Reading]:
    """Yields what each member has reported last; nothing while there is no run.

    So actors and learners, which serve nothing, are seen here.
    """
    try:
        run = registry.find_any("")
    except FailedPreconditionError:
        return
    yield Reading("run_env_steps", float(run.env_steps))
    for member in list(run.members):
        labels = {"role": member.identity.role.name.lower(), "index": str(member.index)}
        yield Reading("member_alive", float(member.alive), labels)
        for name, value in dict(member.counters).items():
            yield Reading("member_counter", value, labels | {"name": name})


def weight_readings(store: WeightStore, trainer: Trainer | None) -> Readings:
    """Yields the version, and in runs with gradients what has become of them."""
    yield Reading("weight_version", float(store.newest.version))
    if trainer:
        yield from _gradient_readings(describe(trainer, store))


def _gradient_readings(info: pb.GetGradientInfoResponse) -> Readings:
    yield from _push_readings(
        "gradient_pushes", dict.fromkeys(_OUTCOMES, 0) | dict(info.push_counts)
    )
    for field, name in _TOTALS.items():
        yield Reading(name, float(getattr(info, field)), is_total=True)
    for field, name in _GAUGES.items():
        yield Reading(name, getattr(info, field))
    yield HistogramReading(
        "gradient_staleness_versions",
        tuple(map(float, info.staleness_bounds)),
        tuple(info.staleness_counts),
        float(info.staleness_sum),
    )
    yield HistogramReading(
        "round_seconds", tuple(info.round_bounds), tuple(info.round_counts), info.round_seconds
    )


def shard_readings(service: ShardService) -> Readings:
    """Yields what a shard keeps, and in runs with gradients what it does with them."""
    yield Reading("shard_parts", float(service.store.part_count))
    yield Reading("shard_bytes", float(service.store.nbytes))
    if service.updates is None:
        return
    info = service.updates.info()
    yield Reading("shard_version", float(info.version))
    yield from _push_readings("shard_refused_gradients", info.push_counts)
    yield Reading("gradient_optimizer_seconds", info.optimizer_seconds, is_total=True)
    yield Reading("gradient_other_seconds", info.other_seconds, is_total=True)


def _push_readings(name: str, counts: Mapping[str, int]) -> Readings:
    for outcome, count in counts.items():
        yield Reading(name, float(count), {"outcome": outcome}, is_total=True)
