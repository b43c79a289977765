"""Where the arithmetic on weights runs: at once if they are small, in a thread if not."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

INLINE_SIZE = 32_768
"""Up to so many weights an update takes less time than handing it to a thread."""


class UpdateThread:
    """One thread for the weights of one run, so that they have one caller at a time."""

    def __init__(self) -> None:
        """Starts with weights of unknown size, which are taken for large."""
        self.is_inline = False
        """Whether work is done at once, on the event loop."""

        self._thread = ThreadPoolExecutor(1, thread_name_prefix="update")

    def expect(self, size: int) -> None:
        """Notes how many weights there are from now on."""
        self.is_inline = size <= INLINE_SIZE

    async def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Runs work on the weights in the thread; at once, if they are small."""
        if self.is_inline:
            return work(*args, **kwargs)
        return await self.run_apart(work, *args, **kwargs)

    async def run_apart(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Runs work in the thread, however small: it may import torch."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, lambda: work(*args, **kwargs))

    def stop(self) -> None:
        """Ends the thread when it has done what it has begun."""
        self._thread.shutdown(wait=False, cancel_futures=True)
