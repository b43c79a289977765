"""Going on from an earlier run's weights and optimizer, in a run with gradients."""

import logging
from pathlib import Path

from mycelia_core.config import RunConfig
from mycelia_core.rpc.errors import StatusError
from mycelia_param_server import checkpoint
from mycelia_param_server.checkpoint import Checkpoint
from mycelia_param_server.trainer import Trainer

logger = logging.getLogger(__name__)


def read_earlier(folder: Path, config: RunConfig) -> Checkpoint | None:
    """Reads the newest weights and optimizer of any run; None, with a warning, if they do not fit.

    Whoever publishes first then begins with an optimizer that knows nothing.
    """
    saved = checkpoint.read_newest(folder, None)
    optimizer = config.gradients.optimizer
    if saved is None:
        logger.warning("%s has no whole version of any weights", folder)
    elif saved.state.get("optimizer") != optimizer:
        logger.warning(
            "%s is of optimizer %s, this run has %s: it begins anew",
            folder,
            saved.state.get("optimizer", "none"),
            optimizer,
        )
    else:
        return saved
    return None


async def go_on_here(trainer: Trainer) -> None:
    """Makes what was saved the newest version of a run on one server.

    Until then nobody can publish. A run with further servers does this itself when they have come.
    """
    try:
        await trainer.rebuild(())
    except (KeyError, ValueError, StatusError) as error:
        logger.error("the earlier run's weights do not fit, and are left out: %s", error)
    finally:
        # One server loses nothing that it could get back from here.
        trainer.saved = None
