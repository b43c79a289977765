"""What a replay server exports to Prometheus of its tables."""

from collections.abc import Iterator, Sequence

from mycelia.replay.v1 import replay_pb2 as pb
from mycelia_core.rpc.metrics import HistogramReading, Reading, Readings

_TABLE = {
    "capacity_rows": "replay_capacity_rows",
    "row_count": "replay_rows",
    "item_count": "replay_items",
    "reserved_bytes": "replay_reserved_bytes",
    "used_bytes": "replay_used_bytes",
    "inserted_row_count": "replay_inserted_rows",
    "inserted_item_count": "replay_inserted_items",
    "sampled_item_count": "replay_sampled_items",
    "updated_priority_count": "replay_updated_priorities",
    "stale_update_count": "replay_stale_updates",
    "duplicate_row_count": "replay_duplicate_rows",
    "missing_row_count": "replay_missing_rows",
    "refused_request_count": "replay_refused_requests",
    "total_priority": "replay_total_priority",
}
_SERVER = {
    "resident_bytes": "replay_resident_bytes",
    "baseline_bytes": "replay_baseline_bytes",
    "checkpoint_count": "replay_checkpoints",
    "checkpoint_time": "replay_checkpoint_time_seconds",
    "checkpoint_pause_seconds": "replay_checkpoint_pause_seconds",
    "checkpoint_bytes": "replay_checkpoint_bytes",
}


def readings(server: pb.ServerInfo, tables: Sequence[pb.TableInfo]) -> Readings:
    """Yields every figure of the server and its tables."""
    for field, name in _SERVER.items():
        yield Reading(name, float(getattr(server, field)))
    for table in tables:
        yield from _table_readings(table)


def _table_readings(info: pb.TableInfo) -> Iterator[Reading | HistogramReading]:
    labels = {"table": info.name}
    for field, name in _TABLE.items():
        yield Reading(name, float(getattr(info, field)), labels)
    limiter = info.rate_limiter
    sides = {
        "insert": (limiter.insert_wait_seconds, limiter.waiting_insert_count),
        "sample": (limiter.sample_wait_seconds, limiter.waiting_sample_count),
    }
    for side, (seconds, callers) in sides.items():
        yield Reading("replay_blocked_seconds", seconds, labels | {"side": side})
        yield Reading("replay_blocked_callers", callers, labels | {"side": side})
    for name, histogram in (
        ("replay_times_sampled", info.times_sampled),
        ("replay_sample_age_seconds", info.sample_age_seconds),
    ):
        yield HistogramReading(
            name, tuple(histogram.bounds), tuple(histogram.counts), histogram.sum, labels
        )
