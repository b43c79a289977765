"""Checkpoints over a server's life: now and then, and once more when it has stopped."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from mycelia_replay.checkpoint.checkpointer import Checkpointer
from mycelia_replay.server import ReplayServer


@asynccontextmanager
async def saved_until(
    server: ReplayServer, checkpointer: Checkpointer | None, period_seconds: float
) -> AsyncIterator[None]:
    """Saves every `period_seconds` inside (never if it is 0); at the end stops and saves."""
    if checkpointer is None:
        yield
        return
    saving = asyncio.create_task(_save_every(checkpointer, period_seconds))
    try:
        yield
    finally:
        saving.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await saving
        # Nothing may be acknowledged after the last checkpoint.
        await server.stop()
        await checkpointer.try_to_save()


async def _save_every(checkpointer: Checkpointer, period_seconds: float) -> None:
    if period_seconds:
        await checkpointer.save_every(period_seconds)
