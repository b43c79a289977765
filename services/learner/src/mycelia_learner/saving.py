"""What of a learner goes into its checkpoints, and comes back from them."""

import logging
import threading
from pathlib import Path
from typing import Any

from mycelia_algorithms.update import Update
from mycelia_core.clients.membership import Membership
from mycelia_core.specs import Signature
from mycelia_learner.assembly import describe_spaces
from mycelia_learner.background import LatestWins
from mycelia_learner.checkpoint import NETWORK, Checkpoint, write_best, write_step
from mycelia_learner.publisher import Publisher
from mycelia_learner.stopping import Evaluated, StoppingRule

logger = logging.getLogger(__name__)


class Saver:
    """Writes checkpoints of a learner: the training state, and the best weights if there are new.

    The training loop calls `save_soon`, which copies at once and writes in a background thread.
    """

    def __init__(
        self,
        run_dir: Path,
        *,
        membership: Membership,
        signature: Signature,
        update: Update,
        publisher: Publisher,
        rule: StoppingRule,
    ) -> None:
        """Will read from the others whenever it saves."""
        self._run_dir = run_dir
        self._membership = membership
        self._signature = signature
        self._update = update
        self._publisher = publisher
        self._rule = rule
        self._saved_best: Evaluated | None = None
        self._writing = threading.Lock()
        self._background = LatestWins("checkpoint", self._write)

    def save_soon(self) -> None:
        """Copies the training state now and writes it soon. Never waits for the disk."""
        self._background.put(self._copy_state())

    def close(self, timeout: float) -> None:
        """Ends the thread, waiting for it at most `timeout` seconds, and saves a last time.

        Raises:
          OSError: the files cannot be written.
        """
        self._background.close(timeout)
        self._write(self._copy_state())

    def _copy_state(self) -> Checkpoint:
        state = self._update.state()
        return Checkpoint(
            tensors={name: tensor.numpy(force=True) for name, tensor in state.tensors.items()},
            state=self._describe() | {"update": dict(state.scalars)},
        )

    def _write(self, checkpoint: Checkpoint) -> None:
        with self._writing:
            path = write_step(self._run_dir, checkpoint)
            logger.info("wrote checkpoint %s", path.name)
            best = self._rule.best
            if best is not None and best is not self._saved_best:
                write_best(self._run_dir, self._describe_best(best))
                self._saved_best = best

    def _describe_best(self, best: Evaluated) -> Checkpoint:
        own = {
            "learner_step": best.snapshot.learner_step,
            "evaluation_return_mean": best.return_mean,
        }
        return Checkpoint(
            tensors={NETWORK + name: array for name, array in best.snapshot.tensors.items()},
            state=self._describe() | own,
        )

    def _describe(self) -> dict[str, Any]:
        config = self._membership.config
        return {
            "run_name": config.name,
            "algorithm": config.algorithm["name"],
            "env_id": config.env.id,
            "spaces": describe_spaces(self._signature),
            "learner_step": self._update.learner_step,
            "env_steps": self._membership.env_steps,
            "policy_version": self._publisher.version,
        }
