"""A learner that keeps the records of a run whose workers compute the gradients."""

import logging
import threading
import time
from pathlib import Path

from mycelia.run.v1 import run_pb2 as pb
from mycelia_core.clients.params import ParamClient
from mycelia_core.clients.run import Membership, RunClient
from mycelia_core.rpc.errors import AbortedError, StatusError
from mycelia_core.specs import Signature
from mycelia_learner import checkpoint
from mycelia_learner.best_weights import read_best
from mycelia_learner.checkpoint import NETWORK, Checkpoint
from mycelia_learner.curve import draw_curve
from mycelia_learner.monitor import Monitor
from mycelia_learner.recorder import Recorder
from mycelia_learner.records.saving import RecordSaver, describe_spaces
from mycelia_learner.records.versions import Versions
from mycelia_learner.records.worker_figures import WorkerFigures
from mycelia_learner.stopping import StoppingRule

PERIOD_SECONDS = 0.25
"""From one look at the newest weights to the next."""

CLOSE_SECONDS = 1.0

logger = logging.getLogger(__name__)


class UnfitCheckpointError(ValueError):
    """A checkpoint is of another environment."""


class RecordSession:
    """Watches one run from its first weights to its end. The main thread owns it.

    It decides when the run is over, as the training learner does, writes checkpoints of the
    weights that the parameter server makes, metrics, and the curve. It needs no torch.
    """

    def __init__(
        self,
        *,
        run_client: RunClient,
        membership: Membership,
        param_client: ParamClient,
        signature: Signature,
        run_dir: Path,
        saved: Path | None,
    ) -> None:
        """Publishes the weights of the checkpoint `saved`, if there is one, for workers to go on.

        Raises:
          UnfitCheckpointError: the checkpoint is of another environment.
          StatusError, TimeoutError: the parameter server does not take the weights.
        """
        self._run_client = run_client
        self._membership = membership
        self._run_dir = run_dir
        self._over = threading.Event()
        self._versions = Versions(param_client)
        if saved is not None:
            _publish(checkpoint.read(saved), signature, param_client)
        membership.set_phase(pb.PHASE_COLLECTING)
        self._rule = self._make_rule(saved)
        self._saver = RecordSaver(
            run_dir,
            membership=membership,
            signature=signature,
            versions=self._versions,
            rule=self._rule,
        )
        self._workers = WorkerFigures()
        self._next_checkpoint_time = 0.0

    def keep(self, stop: threading.Event) -> None:
        """Keeps records until the run is over: by its own rule, by somebody else's, or by `stop`.

        Raises:
          OSError: the run's files cannot be written.
        """
        recorder = Recorder(self._run_dir, self._counters, dict)
        observers = [self._workers.observe, self._judge, recorder.observe]
        monitor = Monitor(self._run_client, self._membership.run_id, observers)
        try:
            while not (stop.is_set() or self._membership.finished.is_set()):
                self._look()
                if self._over.wait(PERIOD_SECONDS):
                    break
        finally:
            self._finish()
            recorder.hurry()
            monitor.close(CLOSE_SECONDS)
            recorder.close()
            self._membership.leave()
            self._draw()

    def _look(self) -> None:
        first = self._versions.version == 0
        snapshot = self._versions.refresh()
        if snapshot is None:
            return
        if first:
            self._membership.set_phase(pb.PHASE_TRAINING)
        self._membership.set_counters(self._counters())
        self._checkpoint_if_due()
        self._rule.observe_updates(snapshot.learner_step)
        self._end_if_decided()

    def _counters(self) -> dict[str, float]:
        newest = self._versions.newest
        if newest is None:
            return {}
        return self._workers.figures | {
            "learner_steps": float(newest.learner_step),
            "policy_version": float(self._versions.version),
        }

    def _checkpoint_if_due(self) -> None:
        now = time.monotonic()
        period = self._membership.config.learner.checkpoint_period_seconds
        if not self._next_checkpoint_time:
            self._next_checkpoint_time = now + period
        elif now >= self._next_checkpoint_time:
            self._next_checkpoint_time = now + period
            self._saver.save()

    def _judge(self, response: pb.GetRunResponse) -> None:
        self._rule.observe(response.progress)
        self._end_if_decided()

    def _end_if_decided(self) -> None:
        if self._rule.decision is not None:
            self._over.set()

    def _finish(self) -> None:
        self._versions.refresh()
        self._saver.save()
        decision = self._rule.decision
        if decision is None:
            return
        logger.info("the run is over: %s", decision.detail)
        try:
            self._run_client.finish_run(decision.outcome, decision.detail)
        except (StatusError, TimeoutError) as error:
            logger.warning("the others could not be told that the run is over: %s", error)

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
            find_snapshot=self._versions.find,
            best=read_best(checkpoint.read(best)) if best is not None else None,
        )


def _publish(saved: Checkpoint, signature: Signature, client: ParamClient) -> None:
    wanted = describe_spaces(signature)
    if saved.state["spaces"] != wanted:
        raise UnfitCheckpointError(
            f"the checkpoint cannot be resumed here: it is for {saved.state['spaces']}, "
            f"this run has {wanted}"
        )
    tensors = {
        name.removeprefix(NETWORK): array
        for name, array in saved.tensors.items()
        if name.startswith(NETWORK)
    }
    try:
        client.publish(tensors, int(saved.state["learner_step"]), expected_version=0)
    except AbortedError:
        logger.info("the parameter server has newer weights than the checkpoint; they stay")
