"""One shard's share of a run's updates: gradients wait here until they count, then all step."""

import asyncio
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mycelia.params.v1 import params_pb2, shards_pb2
from mycelia_core.config import RunConfig
from mycelia_core.rpc.errors import FailedPreconditionError, InvalidArgumentError, NotFoundError
from mycelia_core.weights import Weights
from mycelia_param_server.gradient_intake import GradientIntake, Push, refusal_kind
from mycelia_param_server.master_weights import MasterWeights, build_master
from mycelia_param_server.mean import weighted_mean
from mycelia_param_server.part_store import PartStore
from mycelia_param_server.snapshot import EncodedSnapshot, decode, encode
from mycelia_param_server.update_thread import UpdateThread

FORGOTTEN_SECONDS = 600.0
"""A gradient that has not counted by then is let go of."""


@dataclass(frozen=True, slots=True)
class _Prepared:
    """An update that waits for the others to be as far."""

    version: int
    mean: NDArray[np.float32]
    workers: Sequence[str]
    """Whose gradients are in the mean."""


class ShardUpdates:
    """The weights of one shard, and the gradients that wait for them. One event loop owns it."""

    def __init__(self, config: RunConfig, parts: PartStore) -> None:
        """Applies nothing before a part is adopted.

        Args:
          config: the run's.
          parts: where adopted parts are taken from, and new ones are put.
        """
        self._config = config
        self._parts = parts
        self._thread = UpdateThread()
        self._updating = asyncio.Lock()
        self._master: MasterWeights | None = None
        self._epoch = ""
        self._version = 0
        self._prepared: _Prepared | None = None
        self._waiting: dict[str, tuple[str, float, Push]] = {}
        """By worker: its part's name, when it came, and the gradient."""

        self._refusals: Counter[str] = Counter()

    async def adopt(self, request: shards_pb2.AdoptPartRequest) -> None:
        """Makes a part what gradients are applied to.

        Raises:
          NotFoundError: a part is not here.
          InvalidArgumentError: the weights cannot be trained, or the optimizer's vectors are
            not of them.
        """
        async with self._updating:
            if request.epoch == self._epoch:
                return
            weights = await self._read(request.part_id)
            vectors = await self._read(request.optimizer_part_id)
            master = await self._thread.run_apart(self._make_master, request, weights, vectors)
            self._master, self._prepared, self._waiting = master, None, {}
            self._thread.expect(master.layout.size)
            self._epoch, self._version = request.epoch, request.version
            self._parts.put(self._part_id(request.version), master.snapshot(request.version))

    def begin_gradient(self, header: params_pb2.PushHeader) -> GradientIntake:
        """Prepares for a worker's gradient.

        Raises:
          RefusedPushError: a tensor is unknown, missing or misshapen.
          FailedPreconditionError: no weights have been adopted.
        """
        return GradientIntake(header, self._require().layout)

    async def put_gradient(self, part_id: str, intake: GradientIntake) -> None:
        """Keeps a gradient that is complete until it counts; raises `RefusedPushError`."""
        push = intake.finish() if self._thread.is_inline else await asyncio.to_thread(intake.finish)
        if push.gradient.size != self._require().layout.size:
            raise FailedPreconditionError("other weights were adopted while the gradient came")
        now = time.monotonic()
        self._waiting[push.worker_id] = part_id, now, push
        self._waiting = {
            worker: waiting
            for worker, waiting in self._waiting.items()
            if now - waiting[1] < FORGOTTEN_SECONDS
        }

    def note_refusal(self, error: InvalidArgumentError) -> None:
        """Counts a gradient that was refused."""
        self._refusals[refusal_kind(error)] += 1

    async def prepare(self, request: shards_pb2.PrepareUpdateRequest) -> float:
        """Averages gradients for the next version, and returns the mean's norm.

        Raises:
          FailedPreconditionError: the epoch is another, or the version not the next.
          NotFoundError: a gradient is not here.
        """
        async with self._updating:
            master = self._check_epoch(request.epoch)
            if request.version != self._version + 1:
                raise FailedPreconditionError(
                    f"version: got {request.version}, this shard has {self._version}"
                )
            workers = self._find(request.part_ids)
            gradients = [self._waiting[worker][2] for worker in workers]
            mean = await self._thread.run(weighted_mean, gradients)
            self._prepared = _Prepared(request.version, mean, workers)
            return await self._thread.run(master.norm, mean)

    async def commit(self, request: shards_pb2.CommitUpdateRequest) -> None:
        """Takes the step that was prepared.

        Raises:
          FailedPreconditionError: the epoch is another, or the version not the prepared one.
        """
        async with self._updating:
            master = self._check_epoch(request.epoch)
            if request.version == self._version:
                return
            prepared, self._prepared = self._prepared, None
            if prepared is None or prepared.version != request.version:
                raise FailedPreconditionError(f"version: {request.version} was not prepared")
            for worker in prepared.workers:
                self._waiting.pop(worker, None)
            snapshot = await self._thread.run(
                master.update,
                request.version,
                prepared.mean,
                request.gradient_norm,
                scale=request.scale,
            )
            self._version = request.version
            self._parts.put(self._part_id(request.version), snapshot)

    async def keep_state(self, epoch: str) -> tuple[str, str]:
        """Copies weights and optimizer into parts, and returns their names.

        Raises:
          FailedPreconditionError: the epoch is another.
        """
        async with self._updating:
            master = self._check_epoch(epoch)
            full = np.dtype(np.float32)
            weights = await self._thread.run(master.snapshot, self._version, full)
            vectors = await self._thread.run(master.applier.state)
        weights_id, vectors_id = (f"{self._part_id(self._version)}-{end}" for end in ("w", "o"))
        self._parts.put(weights_id, weights, keep=True)
        if not vectors:
            return weights_id, ""
        state = await asyncio.to_thread(encode, params_pb2.WeightsHeader(), vectors)
        self._parts.put(vectors_id, state, keep=True)
        return weights_id, vectors_id

    def describe(self, epoch: str) -> shards_pb2.GetShardInfoResponse:
        """Says how the shard is doing; raises `FailedPreconditionError` for another epoch."""
        self._check_epoch(epoch)
        return self.info()

    def info(self) -> shards_pb2.GetShardInfoResponse:
        """Says how the shard is doing, whatever its epoch; all 0 before a part is adopted."""
        info = shards_pb2.GetShardInfoResponse(version=self._version, push_counts=self._refusals)
        if self._master:
            timing = self._master.timing
            info.optimizer_seconds = self._master.applier.optimizer_seconds
            info.other_seconds = (
                timing.update_seconds + timing.encoding_seconds - info.optimizer_seconds
            )
        return info

    def stop(self) -> None:
        """Ends the thread when it has done what it has begun."""
        self._thread.stop()

    def _make_master(
        self, request: shards_pb2.AdoptPartRequest, weights: Weights, vectors: Weights
    ) -> MasterWeights:
        adopted = Weights(request.version, request.first_update, weights.tensors)
        try:
            return build_master(self._config, adopted, vectors.tensors, request.step_count)
        except ValueError as error:
            raise InvalidArgumentError(str(error)) from error

    async def _read(self, part_id: str) -> Weights:
        if not part_id:
            return Weights(0, 0, {})
        part = self._parts.find(part_id)
        if not isinstance(part, EncodedSnapshot):
            raise NotFoundError(f"part_id: {part_id!r} was not put here")
        return await asyncio.to_thread(decode, part)

    def _find(self, part_ids: Iterable[str]) -> list[str]:
        """Returns whose gradients these are."""
        workers = {part_id: worker for worker, (part_id, _, _) in self._waiting.items()}
        missing = next((part_id for part_id in part_ids if part_id not in workers), None)
        if missing is not None:
            raise NotFoundError(f"part_ids: {missing!r} is not kept here")
        return [workers[part_id] for part_id in part_ids]

    def _require(self) -> MasterWeights:
        if self._master is None:
            raise FailedPreconditionError("this shard has no weights to apply gradients to")
        return self._master

    def _check_epoch(self, epoch: str) -> MasterWeights:
        if epoch != self._epoch:
            raise FailedPreconditionError(
                f"epoch: got {epoch!r}, this shard has {self._epoch or 'none'!r}"
            )
        return self._require()

    def _part_id(self, version: int) -> str:
        return f"{self._epoch}-{version}"
