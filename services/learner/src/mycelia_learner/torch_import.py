"""Imports torch while the learner waits for the rest of the run."""

import importlib
import logging
import threading

logger = logging.getLogger(__name__)


class TorchImport:
    """Imports torch in a thread: it takes seconds, and so does the start of the other services."""

    def __init__(self) -> None:
        """Starts importing."""
        self._thread = threading.Thread(target=_import, name="torch-import", daemon=True)
        self._thread.start()

    def finish(self, *, threads: int) -> None:
        """Waits until torch is there, and gives it `threads` threads."""
        self._thread.join()
        torch = importlib.import_module("torch")
        torch.set_num_threads(threads)


def _import() -> None:
    try:
        importlib.import_module("torch")
        importlib.import_module("mycelia_algorithms.update")
    except ImportError as error:
        # `finish` raises it again, where it is seen.
        logger.debug("torch cannot be imported: %s", error)
