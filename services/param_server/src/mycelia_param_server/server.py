"""Puts registry, weight store and gRPC server together, and takes them apart in order."""

import asyncio
import contextlib
import logging
from pathlib import Path

from mycelia.run.v1 import run_pb2, run_pb2_grpc
from mycelia_core.config import RunConfig
from mycelia_core.rpc.errors import StatusError
from mycelia_core.rpc.metrics import Metrics
from mycelia_core.rpc.server import Server
from mycelia_param_server.earlier_run import go_on_here, read_earlier
from mycelia_param_server.exports import member_readings, weight_readings
from mycelia_param_server.param_service import SERVICE_NAME, ParamService, add_param_service
from mycelia_param_server.registry import Run, RunRegistry
from mycelia_param_server.run_servicer import RunServicer
from mycelia_param_server.saving import Saver
from mycelia_param_server.shard_group import ShardGroup
from mycelia_param_server.shard_recovery import ShardRecovery
from mycelia_param_server.trainer import TOPOLOGIES, Trainer
from mycelia_param_server.weight_store import WeightStore

logger = logging.getLogger(__name__)

DEFAULT_LEASE_SECONDS = 10.0

DEFAULT_CHECKPOINT_PERIOD_SECONDS = 10.0

WATCH_SECONDS = 0.1
"""How often it looks for leases that have run out, and whether a round waits for their owners."""

DEFAULT_MAX_WEIGHT_BYTES = 1024**3
"""Two versions are held at once while one is published."""


_LOOK_SECONDS = 0.25

_LAST_LOOK_SECONDS = 3.0
"""How long a server that ends with its run still answers."""


class ParamServer:
    """A parameter server. The event loop that starts it owns it."""

    def __init__(
        self,
        bind: str = "127.0.0.1:0",
        *,
        lease_seconds: float = DEFAULT_LEASE_SECONDS,
        max_weight_bytes: int = DEFAULT_MAX_WEIGHT_BYTES,
        checkpoint_dir: Path | None = None,
        checkpoint_period_seconds: float = DEFAULT_CHECKPOINT_PERIOD_SECONDS,
        restore_from: Path | None = None,
        keep_finished: bool = True,
        metrics: Metrics | None = None,
    ) -> None:
        """Prepares a server without a run.

        Args:
          bind: where to listen, `host:port` or `unix:path`.
          lease_seconds: how long a membership lasts without a heartbeat.
          max_weight_bytes: the most that one version of the weights may have.
          checkpoint_dir: where it keeps what it knows, and finds what a server
            before it knew; None to keep it in memory alone.
          checkpoint_period_seconds: how often weights are written there.
          restore_from: an earlier run's checkpoints; the first run that is created goes on from
            its weights and optimizer, if it has gradients.
          keep_finished: whether a run found there that has finished is kept for
            people to look at; if not, the server waits for a new one.
          metrics: counts its calls, and exports what members report.
        """
        self._keep_finished = keep_finished
        self._restore_from = restore_from
        self._store = WeightStore()
        self._registry = RunRegistry(lease_seconds)
        self._params = ParamService(self._registry, self._store, max_weight_bytes)
        self._server = Server(bind, interceptors=[metrics.interceptor] if metrics else [])
        self._metrics = metrics
        self._server.add(add_param_service, self._params, SERVICE_NAME)
        self._server.add(
            run_pb2_grpc.add_RunServiceServicer_to_server,
            RunServicer(self._registry, self._store, self._begin_new),
            run_pb2.DESCRIPTOR.services_by_name["RunService"].full_name,
        )
        self._saver = (
            Saver(checkpoint_dir, checkpoint_period_seconds, self._registry, self._store)
            if checkpoint_dir
            else None
        )
        self._checkpoint_period_seconds = checkpoint_period_seconds
        self._tasks: list[asyncio.Task[None]] = []
        self._recovering: asyncio.Task[None] | None = None

    @property
    def address(self) -> str:
        """Where it listens, once it has started."""
        return self._server.address

    async def start(self) -> None:
        """Goes on from a checkpoint, if there is one, listens and serves.

        Raises:
          AddressInUseError: somebody else listens there.
          BrokenCheckpointError: the checkpoint is not what this version writes.
        """
        self._restore()
        if self._metrics:
            self._metrics.add(lambda: member_readings(self._registry))
            self._metrics.add(lambda: weight_readings(self._store, self._params.trainer))
        await self._server.start()
        self._tasks.append(asyncio.create_task(self._watch_run()))
        if self._saver:
            self._tasks.append(asyncio.create_task(self._keep_saved(self._saver)))

    async def wait_until_over(self) -> None:
        """Waits until a run has finished and its members have left or lost their leases.

        Who only looks on, and so is no member, gets a few seconds to see how it ended.
        """
        while not self._registry.is_over:
            await asyncio.sleep(_LOOK_SECONDS)
        await asyncio.sleep(_LAST_LOOK_SECONDS)

    async def stop(self, grace_seconds: float = 1.0) -> None:
        """Ends open watches, gives other calls the grace to end, and stops."""
        self._params.drain()
        await self._server.stop(grace_seconds)
        for task in self._tasks:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        if self._saver:
            await self._save_at_last(self._saver)
        recovering = self._end_trainer()
        if recovering:
            with contextlib.suppress(asyncio.CancelledError):
                await recovering

    async def _save_at_last(self, saver: Saver) -> None:
        try:
            await saver.save(self._params.trainer)
        except StatusError as error:
            # Shards leave when the run has finished; what was saved before is there.
            logger.warning("the last weights were not saved: %s", error)

    def _restore(self) -> None:
        run = self._saver.restore_run(even_finished=self._keep_finished) if self._saver else None
        if self._saver and run:
            self._begin(run)
            self._saver.restore_weights(run, self._params.trainer)

    def _begin_new(self, run: Run) -> None:
        self._begin(run)
        folder, self._restore_from = self._restore_from, None
        trainer = self._params.trainer
        saved = read_earlier(folder, trainer.config) if folder and trainer else None
        if trainer and saved:
            trainer.saved = saved
            if not trainer.weights.shards:
                self._recovering = asyncio.create_task(go_on_here(trainer))

    def _begin(self, run: Run) -> None:
        """Forgets another run's weights, and prepares for this one's gradients, if it has any."""
        self._store.clear()
        if self._saver:
            self._saver.forget()
        self._end_trainer()
        config = RunConfig.model_validate_json(run.config_json)
        if config.topology not in TOPOLOGIES:
            return
        shards = ShardGroup(run.run_id) if config.param_server.shards > 1 else None
        trainer = Trainer(config, self._store, run.members.is_gone, shards)
        self._params.trainer = trainer
        if shards:
            recovery = ShardRecovery(trainer, shards, run, self._checkpoint_period_seconds)
            self._recovering = asyncio.create_task(recovery.watch())

    def _end_trainer(self) -> asyncio.Task[None] | None:
        """Lets go of the run's gradients; returns what is still to be waited for."""
        if self._params.trainer:
            self._params.trainer.stop()
        task, self._recovering, self._params.trainer = self._recovering, None, None
        if task:
            task.cancel()
        return task

    async def _watch_run(self) -> None:
        # Calls end leases that have run out, too; this is for a quiet server.
        while True:
            await asyncio.sleep(WATCH_SECONDS)
            self._registry.expire()
            if self._params.trainer:
                self._params.trainer.check_round()

    async def _keep_saved(self, saver: Saver) -> None:
        while True:
            await asyncio.sleep(WATCH_SECONDS)
            await saver.save_if_due(self._params.trainer)
