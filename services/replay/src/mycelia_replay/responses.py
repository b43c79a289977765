"""Responses: table descriptions as messages."""

from mycelia.replay.v1 import replay_pb2 as pb
from mycelia_replay.checkpoint.checkpointer import Checkpointer
from mycelia_replay.gate import Gate
from mycelia_replay.histogram import Histogram
from mycelia_replay.memory import resident_bytes
from mycelia_replay.table import Table
from mycelia_replay.table_settings import settings_to_proto


def table_info(gate: Gate) -> pb.TableInfo:
    """Describes a table and who waits for it."""
    table, counters = gate.table, gate.table.counters
    return pb.TableInfo(
        name=table.name,
        signature=table.signature.to_proto(),
        capacity_rows=table.config.capacity_rows,
        row_count=table.row_count,
        item_count=table.item_count,
        reserved_bytes=table.nbytes,
        used_bytes=table.used_bytes,
        times_sampled=_histogram(table.draws.times_sampled),
        sample_age_seconds=_histogram(table.draws.age_seconds),
        inserted_row_count=counters.inserted_rows,
        inserted_item_count=counters.inserted_items,
        sampled_item_count=counters.sampled_items,
        updated_priority_count=counters.updated_priorities,
        stale_update_count=counters.stale_updates,
        duplicate_row_count=counters.duplicate_rows,
        missing_row_count=counters.missing_rows,
        refused_request_count=counters.refused_requests,
        total_priority=table.total_priority,
        settings=settings_to_proto(table.config, table.window),
        deleted_item_count=counters.deleted_items,
        removed_item_count=counters.removed_items,
        stateless_item_count=counters.stateless_items,
        rate_limiter=pb.RateLimiterInfo(
            samples_per_insert=table.limiter.samples_per_insert,
            min_item_count=table.limiter.min_items,
            error_buffer=table.limiter.error_buffer,
            waiting_insert_count=gate.inserts.waiting_count,
            waiting_sample_count=gate.samples.waiting_count,
            insert_wait_seconds=gate.inserts.wait_seconds,
            sample_wait_seconds=gate.samples.wait_seconds,
        ),
    )


def server_info(checkpointer: Checkpointer | None, baseline_bytes: int) -> pb.ServerInfo:
    """Describes this process."""
    info = pb.ServerInfo(resident_bytes=resident_bytes(), baseline_bytes=baseline_bytes)
    if checkpointer and checkpointer.last:
        info.checkpoint_count = checkpointer.saved_count
        info.checkpoint_time = checkpointer.last.time
        info.checkpoint_pause_seconds = checkpointer.last.pause_seconds
        info.checkpoint_bytes = checkpointer.last.byte_count
    return info


def exchanged_counts(table: Table) -> pb.ExchangeCountsResponse:
    """Describes what a table has counted itself."""
    inserted, sampled = table.limiter.counts
    return pb.ExchangeCountsResponse(
        inserted_item_count=inserted,
        sampled_item_count=sampled,
        min_item_count=table.limiter.min_items,
        item_count=table.item_count,
        total_priority=table.total_priority,
        ready=table.item_count >= table.limiter.min_items and table.can_draw(1),
    )


def _histogram(histogram: Histogram) -> pb.Histogram:
    return pb.Histogram(bounds=histogram.bounds, counts=histogram.counts, sum=histogram.sum)
