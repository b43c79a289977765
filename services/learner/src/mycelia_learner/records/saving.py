"""Checkpoints of published weights, written by a learner that does not train."""

import logging
from pathlib import Path
from typing import Any

from mycelia_core.clients.membership import Membership
from mycelia_core.specs import ACTION, OBSERVATION, Signature
from mycelia_learner.checkpoint import NETWORK, Checkpoint, write_best, write_step
from mycelia_learner.publisher import Snapshot
from mycelia_learner.records.versions import Versions
from mycelia_learner.stopping import Evaluated, StoppingRule

logger = logging.getLogger(__name__)


class RecordSaver:
    """Writes the newest weights, and the best ones if there are new. One thread owns it.

    The optimizer's state is the parameter server's to keep.
    """

    def __init__(
        self,
        run_dir: Path,
        *,
        membership: Membership,
        signature: Signature,
        versions: Versions,
        rule: StoppingRule,
    ) -> None:
        """Will read from the others whenever it saves."""
        self._run_dir = run_dir
        self._membership = membership
        self._spaces = describe_spaces(signature)
        self._versions = versions
        self._rule = rule
        self._saved_best: Evaluated | None = None

    def save(self) -> None:
        """Writes now.

        Raises:
          OSError: the files cannot be written.
        """
        newest = self._versions.newest
        if newest is not None:
            path = write_step(self._run_dir, self._checkpoint(newest, {}))
            logger.info("wrote checkpoint %s", path.name)
        best = self._rule.best
        if best is not None and best is not self._saved_best:
            own = {"evaluation_return_mean": best.return_mean}
            write_best(self._run_dir, self._checkpoint(best.snapshot, own))
            self._saved_best = best

    def _checkpoint(self, snapshot: Snapshot, own: dict[str, Any]) -> Checkpoint:
        config = self._membership.config
        state = {
            "run_name": config.name,
            "algorithm": config.algorithm["name"],
            "env_id": config.env.id,
            "spaces": self._spaces,
            "learner_step": snapshot.learner_step,
            "env_steps": self._membership.env_steps,
            "policy_version": self._versions.version,
        }
        tensors = {NETWORK + name: array for name, array in snapshot.tensors.items()}
        return Checkpoint(tensors=tensors, state=state | own)


def describe_spaces(signature: Signature) -> dict[str, str]:
    """Names what the network sees and does, for comparison with a later run's."""
    return {
        prefix: ", ".join(str(column) for column in signature.starting_with(prefix))
        for prefix in (OBSERVATION, ACTION)
    }
