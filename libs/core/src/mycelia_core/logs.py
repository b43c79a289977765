"""Logging to stderr, one line per record, the same in every service."""

import logging
import sys

LEVELS = ("debug", "info", "warning", "error")


def configure_logging(service: str, level: str = "info") -> None:
    """Sends all records of at least `level` to stderr, each with time and service."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        logging.Formatter(
            f"%(asctime)s {service} %(levelname)s %(name)s: %(message)s", datefmt="%H:%M:%S"
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
