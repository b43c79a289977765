"""The replay service in a run: joins, waits for the signature, serves, reports."""

import asyncio
import logging
import threading
from collections.abc import Sequence

from mycelia.run.v1 import run_pb2
from mycelia_core.clients.membership import Membership
from mycelia_core.clients.run import RunClient
from mycelia_core.config import ReplayConfig, RunConfig, TableConfig
from mycelia_core.lifecycle import StopSignal
from mycelia_core.rpc.errors import UnavailableError
from mycelia_core.seeds import seed_sequence
from mycelia_core.specs import Signature
from mycelia_replay.checkpoint.storage import Storage
from mycelia_replay.gate import Gate
from mycelia_replay.memory import resident_bytes
from mycelia_replay.opening import Opened, open_tables
from mycelia_replay.saving import saved_until
from mycelia_replay.server import ReplayServer
from mycelia_replay.table import Table
from mycelia_replay.table_settings import with_error_buffer

logger = logging.getLogger(__name__)

JOIN_SECONDS = 120.0
"""How long to wait for the run, and then for the first actor's signature."""

REPORT_SECONDS = 0.25
"""How often the counters are handed to the heartbeat."""


async def serve_run(
    server: ReplayServer,
    registry: str,
    advertised_address: str,
    stop: StopSignal,
    storage: Storage | None = None,
) -> None:
    """Serves the tables of the run at `registry` until the run ends or `stop`.

    Args:
      server: has started.
      registry: the address of the run registry.
      advertised_address: where others reach the server.
      stop: ends it early.
      storage: where checkpoints are; None for none.

    Raises:
      ValueError: the run's table settings contradict one another, or those of the checkpoint.
      TimeoutError: run or signature did not come in time.
      StoppedError: `stop` came first.
      StatusError: the registry refused.
    """
    stopping = stop.stopping
    with RunClient(registry) as client:
        membership = await asyncio.to_thread(
            client.join,
            run_pb2.ROLE_REPLAY,
            address=advertised_address,
            instance_id=storage.instance_id if storage else None,
            wait_seconds=JOIN_SECONDS,
            stop=stopping,
        )
        try:
            if membership.config.topology != "replay":
                await _idle_until_end(membership, stopping)
                return
            signature = await asyncio.to_thread(client.wait_for_signature, JOIN_SECONDS, stopping)
            opened = await _open(server, membership, signature, storage)
            period = membership.config.replay.checkpoint_period_seconds
            async with saved_until(server, opened.checkpointer, period):
                await _report_until_end(opened.gates, membership, stopping)
        finally:
            await server.stop()
            await asyncio.to_thread(membership.leave)
    if membership.lost:
        raise UnavailableError(f"the run registry at {registry} is gone")


async def _idle_until_end(membership: Membership, stopping: threading.Event) -> None:
    """Takes part without doing anything: whoever starts all services starts this one, too."""
    logger.warning(
        "runs of topology %r need no replay: idle until the end", membership.config.topology
    )
    while not stopping.is_set() and not membership.finished.is_set():
        await asyncio.sleep(REPORT_SECONDS)


def resolve_table(config: RunConfig) -> TableConfig:
    """Returns a server's share of the table, with the error buffer filled in if it is left open.

    What is needed at least is one batch, or one item's samples if they are more.
    """
    table = _share(config.replay)
    if not table.samples_per_insert or table.error_buffer:
        return table
    least = max(1.0, table.samples_per_insert, float(config.learner.batch_size))
    return table.model_copy(update={"error_buffer": 2 * least})


def _share(config: ReplayConfig) -> TableConfig:
    if config.shards == 1:
        return config
    share = {
        "capacity_rows": max(2, -(-config.capacity_rows // config.shards)),
        "min_items_to_sample": -(-config.min_items_to_sample // config.shards),
    }
    return config.model_copy(update=share)


def counters(gate: Gate) -> dict[str, float]:
    """Returns what the service reports of a table."""
    table, counted = gate.table, gate.table.counters
    return {
        "replay_rows": table.row_count,
        "replay_items": table.item_count,
        "capacity_rows": table.config.capacity_rows,
        "inserted_items": counted.inserted_items,
        "sampled_items": counted.sampled_items,
        "samples_per_insert": counted.sampled_items / max(1, counted.inserted_items),
        "stale_updates": counted.stale_updates,
        "refused_requests": counted.refused_requests,
        "updated_priorities": counted.updated_priorities,
        "duplicate_rows": counted.duplicate_rows,
        "missing_rows": counted.missing_rows,
        "used_bytes": table.used_bytes,
        "reserved_bytes": table.nbytes,
        "resident_bytes": resident_bytes(),
        "total_priority": table.total_priority,
        "times_sampled_mean": table.draws.times_sampled.mean,
        "sample_age_seconds_mean": table.draws.age_seconds.mean,
        "insert_wait_seconds": gate.inserts.wait_seconds,
        "sample_wait_seconds": gate.samples.wait_seconds,
    }


async def _open(
    server: ReplayServer, membership: Membership, signature: Signature, storage: Storage | None
) -> Opened:
    config = membership.config
    table_config = resolve_table(config)

    def make() -> Sequence[Table]:
        seed = seed_sequence(config.seed, "replay", membership.index)
        extra = [
            Table(_beside(table_config, extra_config), signature, extra_seed)
            for extra_config, extra_seed in zip(
                config.replay.tables, seed.spawn(len(config.replay.tables)), strict=True
            )
        ]
        return [Table(table_config, signature, seed), *extra]

    opened = await open_tables(server, membership.run_id, make, storage)
    opened.gates[0].check_batch_size(config.learner.batch_size)
    return opened


def _beside(table: TableConfig, extra: TableConfig) -> TableConfig:
    """Returns the settings of a further table, with what it leaves open filled in."""
    return with_error_buffer(extra.model_copy(update={"window": extra.window or table.window}))


async def _report_until_end(
    gates: Sequence[Gate], membership: Membership, stopping: threading.Event
) -> None:
    while not stopping.is_set() and not membership.finished.is_set():
        membership.set_counters(counters(gates[0]))
        await asyncio.sleep(REPORT_SECONDS)
    membership.set_counters(counters(gates[0]))
