"""TensorBoard's event file."""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any


class EventFile:
    """Scalars for TensorBoard. One thread owns it.

    TensorBoard is imported with the first write, since it takes a moment. Its own classes are
    used and not torch's wrapper around them, which takes longer.
    """

    def __init__(self, folder: Path) -> None:
        """Will write to a new file in `folder`."""
        self._folder = folder
        self._writer: Any = None

    def write(self, group: str, scalars: Mapping[str, float], *, step: int) -> None:
        """Adds each scalar as `group/name` at `step`."""
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary

        if self._writer is None:
            self._writer = _open(self._folder)
        values = [
            Summary.Value(tag=f"{group}/{name}", simple_value=value)
            for name, value in scalars.items()
        ]
        event = Event(wall_time=time.time(), step=step, summary=Summary(value=values))
        self._writer.add_event(event)

    def close(self) -> None:
        """Writes out what waits."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None


def _open(folder: Path) -> Any:
    from tensorboard.summary.writer.event_file_writer import EventFileWriter

    return EventFileWriter(str(folder), flush_secs=5)
