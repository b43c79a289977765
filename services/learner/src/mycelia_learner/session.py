"""One learner at work: its parts put together, and taken apart in order."""

import logging
import threading
from pathlib import Path

from mycelia.run.v1 import run_pb2 as pb
from mycelia_algorithms.update import Update
from mycelia_core.clients.params import ParamClient
from mycelia_core.clients.run import Membership, RunClient
from mycelia_core.clients.sharded_replay import AnyReplayClient
from mycelia_core.rpc.errors import StatusError
from mycelia_core.specs import Signature
from mycelia_learner import checkpoint
from mycelia_learner.assembly import build_update, restore
from mycelia_learner.best_weights import read_best
from mycelia_learner.curve import draw_curve
from mycelia_learner.loop import TrainingLoop, take_snapshot
from mycelia_learner.monitor import Monitor
from mycelia_learner.priority_writer import PriorityWriter
from mycelia_learner.publisher import Publisher
from mycelia_learner.recorder import Recorder
from mycelia_learner.reporter import Reporter
from mycelia_learner.saving import Saver
from mycelia_learner.stopping import StoppingRule
from mycelia_learner.table_figures import TableFigures

CLOSE_SECONDS = 1.0
"""How long each part may take to end."""

logger = logging.getLogger(__name__)


class Session:
    """Trains one run, from the first weights to the last checkpoint. The main thread owns it."""

    def __init__(
        self,
        *,
        run_client: RunClient,
        membership: Membership,
        replay_client: AnyReplayClient,
        param_client: ParamClient,
        signature: Signature,
        run_dir: Path,
        saved: Path | None,
    ) -> None:
        """Builds the update, from the checkpoint `saved` if there is one, and publishes it.

        Raises:
          UnfitError: config, environment and checkpoint do not go together.
          StatusError, TimeoutError: the parameter server does not take the weights.
        """
        self._run_client = run_client
        self._membership = membership
        self._replay_client = replay_client
        self._run_dir = run_dir
        self._over = threading.Event()
        self._update = build_update(membership.config, signature)
        if saved is not None:
            _restore(self._update, saved, signature)
        self._publisher = Publisher(
            param_client,
            run_client,
            membership.run_id,
            wire_dtype=membership.config.param_server.wire_dtype,
        )
        self._publisher.publish(take_snapshot(self._update))
        membership.set_phase(pb.PHASE_COLLECTING)
        self._rule = self._make_rule(saved)
        self._saver = Saver(
            run_dir,
            membership=membership,
            signature=signature,
            update=self._update,
            publisher=self._publisher,
            rule=self._rule,
        )

    def train(self, stop: threading.Event) -> None:
        """Trains until the run is over: by its own rule, by somebody else's, or by `stop`.

        Whatever ends it, a checkpoint is written and the curve drawn.

        Raises:
          TimeoutError, StatusError: no batch came for too long, or replay refused.
          OSError: the run's files cannot be written.
        """
        config = self._membership.config
        _follow(stop, self._over)
        _follow(self._membership.finished, self._over)
        sampler = self._replay_client.sampler(
            config.replay.name,
            config.learner.batch_size,
            prefetch=config.learner.prefetch_batches,
            stop=self._over,
        )
        priorities = (
            PriorityWriter(self._replay_client, config.replay.name)
            if config.replay.sampler == "prioritized"
            else None
        )
        reporter = Reporter(self._membership, self._update, self._publisher, sampler, priorities)
        table = TableFigures(self._replay_client, config.replay.name)
        recorder = Recorder(self._run_dir, lambda: reporter.counters, table.read)
        monitor = Monitor(
            self._run_client, self._membership.run_id, [self._judge, recorder.observe]
        )
        loop = TrainingLoop(
            config.learner,
            max_updates=config.limits.max_updates,
            update=self._update,
            sampler=sampler,
            priorities=priorities,
            publisher=self._publisher,
            reporter=reporter,
            saver=self._saver,
            over=self._over,
        )
        try:
            loop.run()
        finally:
            sampler.close()
            if priorities is not None:
                priorities.close(CLOSE_SECONDS)
            reporter.report_last()
            self._rule.observe_updates(self._update.learner_step)
            self._finish()
            recorder.hurry()
            monitor.close(CLOSE_SECONDS)
            recorder.close()
            self._membership.leave()
            self._draw()

    def _judge(self, response: pb.GetRunResponse) -> None:
        self._rule.observe(response.progress)
        if self._rule.decision is not None:
            self._over.set()

    def _finish(self) -> None:
        self._publisher.close(CLOSE_SECONDS)
        try:
            self._publish_best_if_solved()
        except (StatusError, TimeoutError) as error:
            logger.warning("the weights that solved the run could not be published: %s", error)
        self._saver.close(CLOSE_SECONDS)
        decision = self._rule.decision
        if decision is None:
            return
        logger.info("the run is over: %s", decision.detail)
        try:
            self._run_client.finish_run(decision.outcome, decision.detail)
        except (StatusError, TimeoutError) as error:
            logger.warning("the others could not be told that the run is over: %s", error)

    def _publish_best_if_solved(self) -> None:
        # What is left on the server is what solved the run, not what came after.
        decision, best = self._rule.decision, self._rule.best
        if decision is not None and decision.outcome == pb.OUTCOME_SOLVED and best is not None:
            self._publisher.publish(best.snapshot, timeout=CLOSE_SECONDS)

    def _draw(self) -> None:
        config = self._membership.config
        try:
            draw_curve(
                self._run_dir,
                title=f"{config.name} on {config.env.id}, seed {config.seed}",
                solved_return=config.evaluation.solved_return,
            )
        except (OSError, ImportError) as error:
            logger.warning("the learning curve could not be drawn: %s", error)

    def _make_rule(self, saved: Path | None) -> StoppingRule:
        config = self._membership.config
        best = checkpoint.find_best(saved.parent.parent) if saved is not None else None
        return StoppingRule(
            solved_return=config.evaluation.solved_return,
            max_env_steps=config.limits.max_env_steps,
            max_updates=config.limits.max_updates,
            find_snapshot=self._publisher.find,
            best=read_best(checkpoint.read(best)) if best is not None else None,
        )


def _restore(update: Update, saved: Path, signature: Signature) -> None:
    restore(update, checkpoint.read(saved), signature)
    logger.info("going on from %s, learner step %d", saved, update.learner_step)


def _follow(leader: threading.Event, follower: threading.Event) -> None:
    """Sets `follower` as soon as `leader` is set, from a daemon thread."""

    def wait() -> None:
        leader.wait()
        follower.set()

    threading.Thread(target=wait, name="follow", daemon=True).start()
