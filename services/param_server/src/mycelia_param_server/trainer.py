"""Turns pushed gradients into versions of the weights, as they come or in rounds."""

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ParamSpec, TypeVar

import numpy as np
from numpy.typing import NDArray

from mycelia_core.config import RunConfig
from mycelia_core.parts import tensor_spec
from mycelia_core.rpc.errors import FailedPreconditionError
from mycelia_core.weights import WIRE_DTYPES, Weights
from mycelia_param_server import checkpoint
from mycelia_param_server.checkpoint import BrokenCheckpointError, Checkpoint
from mycelia_param_server.gradient_intake import FutureVersionError, Push
from mycelia_param_server.layout import Layout
from mycelia_param_server.master_weights import MasterWeights, Statistics
from mycelia_param_server.push_figures import PushFigures
from mycelia_param_server.push_log import Answer, Outcome, PushLog
from mycelia_param_server.rounds import Round, Rounds
from mycelia_param_server.snapshot import decode
from mycelia_param_server.weight_intake import WeightIntake
from mycelia_param_server.weight_store import WeightStore

P = ParamSpec("P")
T = TypeVar("T")

logger = logging.getLogger(__name__)

INLINE_SIZE = 32_768
"""Up to so many weights an update takes less time than handing it to a thread."""

TOPOLOGIES = ("async-gradients", "sync-gradients")
"""Those in which the parameter server applies gradients."""


class Trainer:
    """Applies the gradients of one run. One event loop owns it; large updates run in a thread.

    Attributes:
      config: the run's.
      figures: what became of the pushes.
      log: each worker's last push.
      rounds: who is waited for, in a run with rounds.
      master: the weights, once there are any.
    """

    def __init__(
        self, config: RunConfig, store: WeightStore, is_gone: Callable[[str], bool]
    ) -> None:
        """Prepares for the first weights to be published.

        Args:
          config: of a run whose topology is one of `TOPOLOGIES`.
          store: where new versions go; emptied of any other run's.
          is_gone: whether a worker has left the run, or its lease has ended.
        """
        self.config = config
        self._config = config.gradients
        self._wire_dtype = WIRE_DTYPES[config.param_server.wire_dtype]
        self._is_synchronous = config.topology == "sync-gradients"
        self._store = store
        self.figures = PushFigures()
        self.log = PushLog()
        self.rounds = Rounds(
            config.gradients.workers or config.actor.count, config.gradients.drop_workers, is_gone
        )
        self.master: MasterWeights | None = None
        self._round: Round | None = None
        self._closing: asyncio.Task[None] | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="update")

    async def publish(self, expected_version: int, intake: WeightIntake) -> int:
        """Starts, or starts anew, from published weights; returns their version.

        Raises:
          AbortedError: `expected_version` is not the newest.
          InvalidArgumentError: the weights are not whole, or cannot be trained.
          FailedPreconditionError: torch is not installed.
        """
        async with self._store.writing:
            repeated = self._store.find_repeat(expected_version, intake.header)
            if repeated is not None:
                return repeated
            layout = Layout.of(intake.header.tensors)
            encoded = intake.finish(expected_version + 1)
            weights = decode(encoded)
            self.master = await self._in_thread(self._make_master, weights, layout)
            self._store.advance(self.master.snapshot(weights.version), published=encoded.header)
            if self._round:
                # What was pushed was for other weights.
                self._round.closed.set_result(Answer(Outcome.LATE))
                self._round = None
        logger.info(
            "applying gradients to %d weights in %d tensors", layout.size, len(layout.trained)
        )
        return weights.version

    def check_version(self, version: int) -> Layout:
        """Returns what pushes are to be made of.

        Raises:
          FailedPreconditionError: there are no weights yet.
          FutureVersionError: no weights of that version have been made.
        """
        if self.master is None:
            raise FailedPreconditionError("no weights have been published to apply gradients to")
        newest = self._store.newest.version
        if version > newest:
            raise FutureVersionError(f"version: got {version}, the newest is {newest}")
        return self.master.layout

    async def push(self, push: Push) -> Answer:
        """Applies a gradient, or lets it join the open round and waits for that to close.

        Raises:
          FutureVersionError: its version has not been made.
        """
        repeated = await self.log.find_repeat(push.worker_id, push.sequence)
        if repeated is not None:
            self.figures.count(Outcome.DUPLICATE.name.lower())
            return repeated
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
            self._close(self._round)

    async def run_blocking(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Runs work on the weights in their thread; at once, if they are small."""
        if self.master and self.master.layout.size <= INLINE_SIZE:
            return work(*args, **kwargs)
        return await self._in_thread(work, *args, **kwargs)

    async def save(self) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        """Returns tensors and the rest for a checkpoint.

        The gradients of an open round are not in it; their workers push them again.
        """
        async with self._store.writing:
            if self.master is None:
                raise FailedPreconditionError("there are no weights to save")
            optimizer = await self.run_blocking(self.master.applier.state)
            version = self._store.newest.version
            snapshot = await self.run_blocking(self.master.snapshot, version)
            state = {
                **self.master.describe(snapshot),
                "sequences": dict(self.log),
                "push_counts": dict(self.figures.counts),
                "staleness": self.figures.staleness,
                "active": sorted(self.rounds.active),
                "unseen": self.rounds.unseen,
            }
        tensors = {checkpoint.WEIGHTS + name: array for name, array in snapshot.tensors().items()}
        tensors |= {checkpoint.OPTIMIZER + name: array for name, array in optimizer.items()}
        return tensors, state

    def restore(self, saved: Checkpoint) -> None:
        """Goes on from a checkpoint. Imports torch; before the server serves.

        Raises:
          BrokenCheckpointError: it is not of this run's optimizer, or lacks something.
        """
        state = saved.state
        try:
            tensors = saved.under(checkpoint.WEIGHTS)
            ordered = {name: tensors[name] for name in state["names"]}
            weights = Weights(state["version"], state["first_update"], ordered)
            layout = Layout.of(tensor_spec(name, array) for name, array in ordered.items())
            self.master = self._make_master(weights, layout)
            optimizer = saved.under(checkpoint.OPTIMIZER)
            self.master.applier.load(optimizer, state["step_count"])
            self.log = PushLog(state["sequences"])
            self.figures = PushFigures(state["push_counts"], state["staleness"])
            self.rounds.restore(state["active"], state["unseen"])
        except (KeyError, TypeError, ValueError) as error:
            raise BrokenCheckpointError(f"version {state.get('version')}: {error!r}") from error
        self._store.advance(self.master.snapshot(weights.version))

    def stop(self) -> None:
        """Ends the thread when it has done what it has begun."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def _in_thread(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, lambda: work(*args, **kwargs))

    def _make_master(self, weights: Weights, layout: Layout) -> MasterWeights:
        return MasterWeights(
            weights, layout, self._config, self.config.limits.max_updates, self._wire_dtype
        )

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
            statistics = [push.statistics] if push.statistics else []
            applied = await self._update(push.gradient, statistics, scale)
        outcome = Outcome.APPLIED if applied else Outcome.SKIPPED
        return Answer(outcome, staleness, push.metrics)

    async def _update(
        self, gradient: NDArray[np.float32], statistics: list[Statistics], scale: float = 1.0
    ) -> bool:
        """Makes the next version, with `writing` held; returns whether the gradient was used."""
        if self.master is None:
            raise FailedPreconditionError("no weights have been published to apply gradients to")
        version = self._store.newest.version + 1
        snapshot = await self.run_blocking(self.master.update, version, gradient, statistics, scale)
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
        await self.run_blocking(joined.add, push)
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
        self._close(expired)

    def _close(self, full: Round) -> None:
        if full.timer:
            full.timer.cancel()
        self._closing = asyncio.create_task(self._apply_round(full))

    async def _apply_round(self, full: Round) -> None:
        try:
            async with self._store.writing:
                mean = await self.run_blocking(full.mean)
                applied = await self._update(mean, full.statistics)
                outcome = Outcome.APPLIED if applied else Outcome.SKIPPED
                # Before `writing` is free: a checkpoint that follows finds these pushes answered.
                full.closed.set_result(Answer(outcome, 0, full.mean_metrics()))
        except Exception as error:  # noqa: BLE001 - every worker of the round is told
            full.closed.set_exception(error)
        finally:
            self._round = None
            self._closing = None
