"""Responses: batches and table descriptions as messages."""

from collections.abc import Iterator

from mycelia.replay.v1 import replay_pb2 as pb
from mycelia_core.codec import encode
from mycelia_core.parts import split, tensor_spec
from mycelia_replay.gate import Gate
from mycelia_replay.table import Sampled


def batch_messages(
    batch_index: int, sampled: Sampled, context_row_count: int
) -> Iterator[pb.SampleResponse]:
    """Yields a batch as one message, or several if it is large."""
    header = pb.BatchHeader(
        item_keys=encode(sampled.item_keys),
        probabilities=encode(sampled.probabilities),
        row_counts=encode(sampled.row_counts),
        times_sampled=encode(sampled.times_sampled),
        item_count=sampled.item_count,
        total_priority=sampled.total_priority,
        context_row_count=context_row_count,
        columns=[tensor_spec(name, values) for name, values in sampled.columns.items()],
    )
    message = pb.SampleResponse(batch_index=batch_index, header=header)
    for parts in split(sampled.columns.values()):
        if message.parts:
            yield message
            message = pb.SampleResponse(batch_index=batch_index)
        message.parts.extend(parts)
    message.last = True
    yield message


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
        inserted_row_count=counters.inserted_rows,
        inserted_item_count=counters.inserted_items,
        sampled_item_count=counters.sampled_items,
        updated_priority_count=counters.updated_priorities,
        stale_update_count=counters.stale_updates,
        duplicate_row_count=counters.duplicate_rows,
        missing_row_count=counters.missing_rows,
        refused_request_count=counters.refused_requests,
        total_priority=table.total_priority,
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
