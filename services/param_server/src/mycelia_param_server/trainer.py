"""Turns pushed gradients into versions of the weights, as they come or in rounds."""

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mycelia_core.config import RunConfig
from mycelia_core.rpc.errors import UnavailableError
from mycelia_param_server import joined_state
from mycelia_param_server.checkpoint import BrokenCheckpointError, Checkpoint
from mycelia_param_server.gradient_intake import FutureVersionError, PartIds, Push
from mycelia_param_server.layout import Layout
from mycelia_param_server.master_weights import MasterWeights, Statistics
from mycelia_param_server.push_figures import PushFigures
from mycelia_param_server.push_log import Answer, Outcome, PushLog
from mycelia_param_server.rounds import Round, Rounds
from mycelia_param_server.shard_group import ShardGroup
from mycelia_param_server.trained_weights import TrainedWeights
from mycelia_param_server.weight_intake import WeightIntake
from mycelia_param_server.weight_store import WeightStore

logger = logging.getLogger(__name__)

TOPOLOGIES = ("async-gradients", "sync-gradients")
"""Those in which the parameter server applies gradients."""


class Trainer:
    """Applies the gradients of one run. One event loop owns it; large updates run in a thread.

    Attributes:
      config: the run's.
      figures: what became of the pushes.
      log: each worker's last push.
      rounds: who is waited for, in a run with rounds.
      weights: what gradients are applied to.
      saved: with several servers, what all go on from when one is lost; None if nothing is
        saved yet.
      save_time: when that was saved, on the monotonic clock.
    """

    def __init__(
        self,
        config: RunConfig,
        store: WeightStore,
        is_gone: Callable[[str], bool],
        shards: ShardGroup | None = None,
    ) -> None:
        """Prepares for the first weights to be published.

        Args:
          config: of a run whose topology is one of `TOPOLOGIES`.
          store: where new versions go; emptied of any other run's.
          is_gone: whether a worker has left the run, or its lease has ended.
          shards: the run's further parameter servers, if it has any.
        """
        self.config = config
        self._config = config.gradients
        self._is_synchronous = config.topology == "sync-gradients"
        self._store = store
        self.figures = PushFigures()
        self.log = PushLog()
        self.rounds = Rounds(
            config.gradients.workers or config.actor.count, config.gradients.drop_workers, is_gone
        )
        self.weights = TrainedWeights(config, shards)
        self.saved: Checkpoint | None = None
        self.save_time = 0.0
        self._round: Round | None = None
        self._closing: asyncio.Task[None] | None = None

    @property
    def master(self) -> MasterWeights | None:
        """This server's part of the weights, once there are any."""
        return self.weights.master

    async def publish(self, expected_version: int, intake: WeightIntake) -> int:
        """Starts, or starts anew, from published weights; returns their version.

        Raises:
          AbortedError: `expected_version` is not the newest.
          InvalidArgumentError: the weights are not whole, or cannot be trained.
          FailedPreconditionError: torch is not installed.
          UnavailableError: a shard of the weights is away.
        """
        if self.is_waiting:
            raise UnavailableError("the saved weights wait for the run's further servers")
        async with self._store.writing:
            repeated = self._store.find_repeat(expected_version, intake.header)
            if repeated is not None:
                return repeated
            encoded = intake.finish(expected_version + 1)
            snapshot = await self.weights.begin(encoded)
            self._store.advance(snapshot, published=encoded.header)
            self._drop_round()
        if self.weights.shards:
            await self.save()
        logger.info(
            "applying gradients to %d weights in %d tensors, and on %d further servers",
            snapshot.layout.size,
            len(snapshot.layout.trained),
            len(snapshot.shards),
        )
        return snapshot.version

    def check_version(self, version: int) -> Layout:
        """Returns what pushes are to be made of.

        Raises:
          FailedPreconditionError: there are no weights yet.
          FutureVersionError: no weights of that version have been made.
        """
        layout = self.weights.require().layout
        newest = self._store.newest.version
        if version > newest:
            raise FutureVersionError(f"version: got {version}, the newest is {newest}")
        return layout

    async def push(self, push: Push) -> Answer:
        """Applies a gradient, or lets it join the open round and waits for that to close.

        Raises:
          FutureVersionError: its version has not been made.
          UnavailableError: the other parts of it, or of the weights, are away.
        """
        repeated = await self.log.find_repeat(push.worker_id, push.sequence)
        if repeated is not None:
            self.figures.count(Outcome.DUPLICATE.name.lower())
            return repeated
        if self.weights.shards:
            self.weights.shards.check_parts(push.elsewhere)
        take = self._join_round if self._is_synchronous else self._apply_at_once
        answer = asyncio.create_task(take(push))
        self.log.note(push.worker_id, push.sequence, answer)
        # Once begun it is seen through, even if the worker hangs up meanwhile.
        result = await asyncio.shield(answer)
        self.figures.count(result.outcome.name.lower())
        return result

    def check_round(self) -> None:
        """Closes the open round if those it still waits for are gone."""
        if self._round and self._closing is None and self.rounds.is_full(self._round.came):
            self._close(self._round, self.rounds.worker_count - len(self._round.came))

    @property
    def is_waiting(self) -> bool:
        """Whether saved weights wait for the servers that they are to lie on."""
        return self.saved is not None and not self._store.newest.version

    async def save(self) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        """Returns tensors and the rest for a checkpoint.

        The gradients of an open round are not in it; their workers push them again.

        Raises:
          FailedPreconditionError: there are no weights.
          StatusError, TimeoutError: a shard of the weights is away.
        """
        async with self._store.writing:
            copies = await self.weights.copy(self._store.newest.version)
            state = {
                **copies.state,
                "sequences": dict(self.log),
                **self.figures.state(),
                "optimizer": self._config.optimizer,
                "active": sorted(self.rounds.active),
                "unseen": self.rounds.unseen,
            }
        shards = self.weights.shards
        others = await joined_state.fetch(shards.run_id, copies.kept) if shards else []
        tensors, state["names"] = joined_state.join([copies.own, *others])
        if shards:
            self.saved, self.save_time = Checkpoint(tensors, state), time.monotonic()
        return tensors, state

    def restore(self, saved: Checkpoint) -> None:
        """Goes on from a checkpoint. Imports torch; before the server serves.

        Weights that are to lie on further servers wait for those: see `rebuild`.

        Raises:
          BrokenCheckpointError: it is not of this run's optimizer, or lacks something.
        """
        state = saved.state
        try:
            self.log = PushLog(state["sequences"])
            self.figures = PushFigures.restored(state)
            self.rounds.restore(state["active"], state["unseen"])
            if self.weights.shards:
                self.saved = saved
                return
            snapshot = self.weights.start_here(saved)
        except (KeyError, TypeError, ValueError) as error:
            raise BrokenCheckpointError(f"version {state.get('version')}: {error!r}") from error
        self._store.advance(snapshot)

    async def rebuild(self, addresses: Sequence[str]) -> None:
        """Puts what was saved last on this server and further ones, as the newest version.

        Raises:
          StatusError, TimeoutError: one of them is away.
          KeyError, ValueError: the checkpoint lacks something, or is of another optimizer.
        """
        async with self._store.writing:
            saved = self.saved
            if saved is None:
                return
            own, *others = await asyncio.to_thread(joined_state.split, saved, len(addresses) + 1)
            newest = self._store.newest.version
            version = newest + 1 if newest else saved.state["version"]
            parts = dict(zip(addresses, others, strict=False))
            snapshot = await self.weights.resume(version, saved.state, own, parts)
            self._store.advance(snapshot)
            self._drop_round()
        logger.info(
            "version %d of the weights is on %d servers: what was saved as version %d",
            version,
            1 + len(parts),
            saved.state["version"],
        )

    def stop(self) -> None:
        """Ends the thread when it has done what it has begun."""
        self.weights.thread.stop()

    def _drop_round(self) -> None:
        """Closes the open round without using it: what was pushed was for other weights."""
        if self._round:
            self._round.closed.set_result(Answer(Outcome.LATE))
            self._round = None

    async def _apply_at_once(self, push: Push) -> Answer:
        async with self._store.writing:
            staleness = self._store.newest.version - push.version
            self.figures.observe_staleness(staleness)
            bound = self._config.max_staleness
            is_stale = bool(bound) and staleness > bound
            if is_stale and self._config.stale_gradients == "refuse":
                return Answer(Outcome.REFUSED_STALE, staleness)
            # Zhang et al. 2016, "Staleness-aware Async-SGD": the step size over the staleness.
            scale = 1 / staleness if is_stale else 1.0
            self.figures.scaled += is_stale
            statistics = [push.statistics] if push.statistics else []
            applied = await self._update(push.gradient, [push.elsewhere], statistics, scale)
        outcome = Outcome.APPLIED if applied else Outcome.SKIPPED
        return Answer(outcome, staleness, push.metrics)

    async def _update(
        self,
        gradient: NDArray[np.float32],
        elsewhere: Sequence[PartIds],
        statistics: Sequence[Statistics],
        scale: float = 1.0,
    ) -> bool:
        """Makes the next version, with `writing` held; returns whether the gradient was used."""
        version = self._store.newest.version + 1
        snapshot = await self.weights.update(version, gradient, elsewhere, statistics, scale)
        if snapshot is None:
            logger.warning("left out an update of version %d: its norm is not finite", version - 1)
            return False
        self._store.advance(snapshot)
        return True

    async def _join_round(self, push: Push) -> Answer:
        if self._closing:
            await asyncio.shield(self._closing)
        layout = self.check_version(push.version)
        newest = self._store.newest.version
        self.figures.observe_staleness(newest - push.version)
        self.rounds.enter(push.worker_id)
        if push.version < newest:
            return Answer(Outcome.LATE, newest - push.version)
        if self._round is None:
            self._round = Round(newest, layout.size)
            self._round.timer = asyncio.get_running_loop().call_later(
                self._config.round_deadline_seconds, self._end, self._round
            )
        joined = self._round
        await self.weights.thread.run(joined.add, push)
        joined.came.add(push.worker_id)
        if self._round is joined:
            self.check_round()
        return await joined.closed

    def _end(self, expired: Round) -> None:
        """Closes a round at its deadline."""
        if self._round is not expired or self._closing or not expired.came:
            return
        absent = self.rounds.drop_absent(expired.came)
        logger.warning(
            "the round of version %d closes at its deadline with %d workers; "
            "going on without the other %d",
            expired.version,
            len(expired.came),
            absent,
        )
        self._close(expired, absent)

    def _close(self, full: Round, absent: int) -> None:
        if full.timer:
            full.timer.cancel()
        self.figures.observe_round(time.monotonic() - full.open_time, absent)
        self._closing = asyncio.create_task(self._apply_round(full))

    async def _apply_round(self, full: Round) -> None:
        try:
            async with self._store.writing:
                mean = await self.weights.thread.run(full.mean)
                applied = await self._update(mean, full.elsewhere, full.statistics)
                outcome = Outcome.APPLIED if applied else Outcome.SKIPPED
                # Before `writing` is free: a checkpoint that follows finds these pushes answered.
                full.closed.set_result(Answer(outcome, 0, full.mean_metrics()))
        except Exception as error:  # noqa: BLE001 - every worker of the round is told
            full.closed.set_exception(error)
        finally:
            self._round = None
            self._closing = None
