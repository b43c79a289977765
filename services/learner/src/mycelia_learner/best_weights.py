"""The best weights so far, back from their checkpoint."""

from collections.abc import Mapping
from typing import Any

from mycelia_learner.checkpoint import NETWORK, Checkpoint
from mycelia_learner.publisher import Snapshot
from mycelia_learner.stopping import Evaluated


def read_best(checkpoint: Checkpoint) -> Evaluated:
    """Takes the best weights so far, and how they did, from their checkpoint."""
    tensors: Mapping[str, Any] = {
        name.removeprefix(NETWORK): array for name, array in checkpoint.tensors.items()
    }
    snapshot = Snapshot(int(checkpoint.state["learner_step"]), tensors)
    return Evaluated(float(checkpoint.state["evaluation_return_mean"]), snapshot)
