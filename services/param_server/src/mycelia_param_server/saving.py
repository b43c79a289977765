"""Writes checkpoints while the server serves, and brings back what they hold."""

import asyncio
import contextlib
import logging
import time
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from mycelia.params.v1 import params_pb2 as pb
from mycelia_core.clients.weight_parts import WeightParts
from mycelia_core.rpc.errors import StatusError
from mycelia_core.weights import Weights
from mycelia_param_server import checkpoint
from mycelia_param_server.checkpoint import WEIGHTS, BrokenCheckpointError, Checkpoint
from mycelia_param_server.registry import Phase, Run, RunRegistry
from mycelia_param_server.registry_state import load_run, save_run
from mycelia_param_server.snapshot import EncodedSnapshot, Snapshot, decode, encode
from mycelia_param_server.trainer import Trainer
from mycelia_param_server.weight_store import WeightStore

PART_SECONDS = 30.0
"""The deadline of each part of the weights that another server keeps."""

logger = logging.getLogger(__name__)


class Saver:
    """Keeps the checkpoints of one server. One event loop owns it; writing happens in threads.

    What changes who takes part or how far the run is, is written at once; weights, optimizer and
    counters every period, if they have changed.
    """

    def __init__(
        self, folder: Path, period_seconds: float, registry: RunRegistry, store: WeightStore
    ) -> None:
        """Writes into `folder`, which is made when there is something to write."""
        self._folder = folder
        self._period_seconds = period_seconds
        self._registry = registry
        self._store = store
        self._writing = asyncio.Lock()
        self._next_time = 0.0
        self._saved_revision = -1
        self._saved_version = 0

    def restore_run(self, *, even_finished: bool = True) -> Run | None:
        """Puts the saved run into the registry, and returns it; None if there is none.

        Args:
          even_finished: whether a run that has finished counts as one.

        Raises:
          BrokenCheckpointError: the file is not what this version writes.
        """
        saved = checkpoint.read_registry(self._folder)
        if saved is None:
            return None
        try:
            run = load_run(saved["run"], self._registry.make_members())
        except (KeyError, TypeError, ValueError) as error:
            raise BrokenCheckpointError(
                f"{self._folder / checkpoint.REGISTRY}: {error!r}"
            ) from error
        if run.phase is Phase.FINISHED and not even_finished:
            return None
        self._registry.restore(run)
        return run

    def restore_weights(self, run: Run, trainer: Trainer | None) -> None:
        """Makes the newest whole version of the run's weights the newest again, if there is one.

        Raises:
          BrokenCheckpointError: the optimizer in it is not the run's.
        """
        saved = checkpoint.read_newest(self._folder, run.run_id)
        if saved is None:
            logger.warning("run %s is back, without weights: none were saved", run.run_id)
            return
        if trainer:
            trainer.restore(saved)
        else:
            self._store.advance(_load_published(saved))
        self._saved_version = self._store.newest.version
        logger.info("run %s is back, with version %d", run.run_id, saved.state["version"])

    async def save_if_due(self, trainer: Trainer | None) -> None:
        """Writes what is due; errors are logged, and it is tried again."""
        now = time.monotonic()
        is_due = now >= self._next_time
        is_news = self._registry.revision != self._saved_revision
        # The shards of the weights leave a moment after the run has finished.
        is_over = is_news and self._has_finished()
        is_first = self._store.newest.version and not self._saved_version
        if not (is_due or is_news or is_first):
            return
        if is_due:
            self._next_time = now + self._period_seconds
        try:
            await self.save(trainer, with_weights=bool(is_due or is_first or is_over))
        except (OSError, StatusError):  # a TimeoutError is an OSError
            logger.exception("a checkpoint could not be written to %s", self._folder)

    def _has_finished(self) -> bool:
        run = self._registry.run
        return run is not None and run.phase is Phase.FINISHED

    async def save(self, trainer: Trainer | None, *, with_weights: bool = True) -> None:
        """Writes the registry, and the weights if there are newer ones than those on disk.

        Raises:
          OSError: the folder cannot be written to, or a shard does not answer in time.
          StatusError: a shard of the weights is away.
        """
        run = self._registry.run
        if run is None:
            return
        async with self._writing:
            revision = self._registry.revision
            registry = {"run": save_run(run)}
            await asyncio.to_thread(checkpoint.write_registry, self._folder, registry)
            self._saved_revision = revision
            if with_weights:
                await self._save_weights(run.run_id, trainer)

    async def _save_weights(self, run_id: str, trainer: Trainer | None) -> None:
        if self._store.newest.version in (0, self._saved_version):
            return
        if trainer:
            tensors, state = await trainer.save()
        else:
            newest = self._store.newest
            tensors, state = await asyncio.to_thread(_save_published, run_id, newest)
        content = Checkpoint(tensors, {**state, "run_id": run_id})
        await asyncio.to_thread(checkpoint.write, self._folder, content)
        if not self._saved_version:
            await asyncio.to_thread(checkpoint.drop_others, self._folder, run_id)
        self._saved_version = state["version"]

    def forget(self) -> None:
        """Notes that a new run has begun: nothing of it is saved yet."""
        self._saved_version = 0


def _save_published(
    run_id: str, snapshot: Snapshot
) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    if not isinstance(snapshot, EncodedSnapshot):
        raise TypeError("only a trainer makes other snapshots, and saves them itself")
    weights = _whole(run_id, snapshot)
    tensors = {WEIGHTS + name: tensor for name, tensor in weights.tensors.items()}
    return tensors, {
        "version": weights.version,
        "learner_step": weights.learner_step,
        "publish_time": weights.publish_time,
        "names": list(weights.tensors),
    }


def _whole(run_id: str, snapshot: EncodedSnapshot) -> Weights:
    """Returns the weights with the parts that other servers keep: a checkpoint needs no other."""
    if not snapshot.header.shards:
        return decode(snapshot)
    with contextlib.closing(WeightParts(run_id)) as parts:
        reader = parts.reader(snapshot.header, timeout=PART_SECONDS)
        for data in snapshot.encoded:
            reader.add(pb.WatchWeightsResponse.FromString(data).parts)
        return reader.finish()


def _load_published(saved: Checkpoint) -> EncodedSnapshot:
    header = pb.WeightsHeader(
        version=saved.state["version"], learner_step=saved.state["learner_step"]
    )
    header.publish_time.FromNanoseconds(int(saved.state["publish_time"] * 1e9))
    tensors = saved.under(WEIGHTS)
    return encode(header, {name: tensors[name] for name in saved.state["names"]})
