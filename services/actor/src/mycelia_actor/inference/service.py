"""The inference service in a run: joins, waits for the signature, serves, reports."""

import asyncio
import logging
import threading
from collections.abc import Callable
from contextlib import ExitStack

from mycelia.inference.v1 import inference_pb2_grpc
from mycelia.run.v1 import run_pb2
from mycelia_actor.inference.batcher import Batcher
from mycelia_actor.inference.network import make_network
from mycelia_actor.inference.servicer import SERVICE_NAME, InferenceServicer, Served
from mycelia_actor.inference.slots import SlotTable
from mycelia_actor.joining import WAIT_SECONDS, MembershipLostError
from mycelia_actor.policies.device import find_device
from mycelia_core.clients.params import ParamClient, WeightWatcher
from mycelia_core.clients.run import Membership, RunClient
from mycelia_core.config import RunConfig
from mycelia_core.lifecycle import StopSignal
from mycelia_core.rpc.server import Server
from mycelia_core.specs import OBSERVATION, Signature
from mycelia_core.weights import Weights

logger = logging.getLogger(__name__)

REPORT_SECONDS = 0.25
"""How often the counters are handed to the heartbeat."""


class InferenceServer:
    """Listens at once, serves a network once it has one. The event loop that starts it owns it."""

    def __init__(self, bind: str = "127.0.0.1:0") -> None:
        """Prepares a server for `bind`: `host:port` (port 0 takes a free one) or `unix:path`."""
        self._servicer = InferenceServicer()
        self._server = Server(bind)
        self._server.add(
            inference_pb2_grpc.add_InferenceServiceServicer_to_server,
            self._servicer,
            SERVICE_NAME,
        )

    @property
    def address(self) -> str:
        """Where it listens, once it has started."""
        return self._server.address

    async def start(self) -> None:
        """Listens; callers get `UNAVAILABLE` until `open`. Raises `AddressInUseError`."""
        await self._server.start()

    def open(self, served: Served) -> None:
        """Begins to serve."""
        self._servicer.open(served)

    async def stop(self, grace_seconds: float = 0.2) -> None:
        """Takes no new streams, and ends those that are open after the grace."""
        self._servicer.close()
        await self._server.stop(grace_seconds)


async def serve_run(
    server: InferenceServer, registry: str, advertised_address: str, stop: StopSignal
) -> None:
    """Serves the network of the run at `registry` until the run ends or `stop`.

    Args:
      server: has started.
      registry: the address of the run registry.
      advertised_address: where actors reach the server.
      stop: ends it early.

    Raises:
      UnplayableError: network, weights and signature do not go together.
      MembershipLostError: the membership ended before the run did.
      TimeoutError: run or signature did not come in time.
      StoppedError: `stop` came first.
      StatusError: the registry refused.
    """
    stopping = stop.stopping
    with RunClient(registry) as client:
        membership = await asyncio.to_thread(
            client.join,
            run_pb2.ROLE_INFERENCE,
            address=advertised_address,
            wait_seconds=WAIT_SECONDS,
            stop=stopping,
        )
        if membership.config.actor.inference != "central":
            logger.warning(
                "a run with actor.inference=%s needs no inference service: idle until the end",
                membership.config.actor.inference,
            )
        try:
            # While others start: importing torch takes seconds, in which the loop must answer.
            device = await asyncio.to_thread(
                find_device, membership.config.inference.device, "inference.device"
            )
            signature = await asyncio.to_thread(client.wait_for_signature, WAIT_SECONDS, stopping)
            await _serve(server, membership, signature, device, stopping)
        finally:
            await server.stop()
            await asyncio.to_thread(membership.leave)
    if membership.lost:
        raise MembershipLostError(f"lost the membership of run {membership.run_id}")


async def _serve(
    server: InferenceServer,
    membership: Membership,
    signature: Signature,
    device: str,
    stopping: threading.Event,
) -> None:
    with ExitStack() as stack:
        address, run_id = membership.registry_address, membership.run_id
        params = stack.enter_context(ParamClient(address, run_id))
        watcher = WeightWatcher(params)
        stack.callback(watcher.stop)
        served = await asyncio.to_thread(
            make_served, run_id, membership.config, signature, lambda: watcher.latest, device
        )
        stack.callback(served.batcher.close)
        server.open(served)
        logger.info("evaluates the policy of %s on %s", membership.config.env.id, device)
        while not stopping.is_set() and not membership.finished.is_set():
            membership.set_counters(counters(served))
            if served.batcher.failure:
                raise served.batcher.failure
            await asyncio.sleep(REPORT_SECONDS)
        membership.set_counters(counters(served))


def make_served(
    run_id: str,
    config: RunConfig,
    signature: Signature,
    newest_weights: Callable[[], Weights | None],
    device: str = "cpu",
) -> Served:
    """Builds the network of a run and starts to batch. Its batcher is to be closed.

    Raises:
      UnplayableError: network and signature do not go together.
    """
    settings = config.inference
    batcher = Batcher(
        make_network(signature, config, device),
        newest_weights,
        slot_count=settings.max_slots,
        max_batch=settings.max_batch,
        deadline_seconds=settings.deadline_ms / 1000,
    )
    specs = signature.starting_with(OBSERVATION)
    return Served(run_id, specs, batcher, SlotTable(settings.max_slots))


def counters(served: Served) -> dict[str, float]:
    """Returns what the service reports."""
    figures = served.batcher.figures
    return {
        "policy_version": served.batcher.policy_version,
        "inferred_rows": figures.rows,
        "inference_requests": figures.requests,
        "inference_batches": figures.batches,
        "batch_rows_mean": figures.rows / max(1, figures.batches),
        "batch_wait_seconds": figures.wait_seconds,
        "compute_seconds": figures.compute_seconds,
        "inference_streams": served.slots.lease_count,
        "used_slots": served.slots.used_count,
    }
