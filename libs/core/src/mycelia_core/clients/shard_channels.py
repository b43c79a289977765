"""Calls to the shards of a run's weights, several at once."""

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import ParamSpec, TypeVar

import grpc

from mycelia.params.v1 import shards_pb2_grpc
from mycelia_core.rpc.channel import open_channel
from mycelia_core.rpc.errors import UnavailableError

P = ParamSpec("P")
T = TypeVar("T")

MAX_THREADS = 16
"""How many shards are called at once; there are rarely more."""


class ShardChannels:
    """Channels to shards, and the threads that call them. Any thread may use it."""

    def __init__(self) -> None:
        """Connects to nobody yet."""
        self._lock = threading.Lock()
        self._channels: dict[str, grpc.Channel] = {}
        self._threads: ThreadPoolExecutor | None = None
        self._closed = False

    def stub(self, address: str) -> shards_pb2_grpc.ShardServiceStub:
        """Returns what calls a shard; raises `UnavailableError` after `close`."""
        with self._lock:
            if self._closed:
                raise UnavailableError(f"the shard {address}: this client is closed")
            if address not in self._channels:
                self._channels[address] = open_channel(address)
            return shards_pb2_grpc.ShardServiceStub(self._channels[address])

    def submit(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> "Future[T]":
        """Makes a call in a thread; raises `UnavailableError` after `close`."""
        with self._lock:
            if self._closed:
                raise UnavailableError("this client is closed")
            if self._threads is None:
                self._threads = ThreadPoolExecutor(MAX_THREADS, thread_name_prefix="shard")
            return self._threads.submit(call, *args, **kwargs)

    def close(self) -> None:
        """Ends what is under way, and closes all channels."""
        with self._lock:
            self._closed = True
            channels, self._channels = list(self._channels.values()), {}
            threads, self._threads = self._threads, None
        for channel in channels:
            channel.close()
        if threads:
            threads.shutdown(wait=False, cancel_futures=True)
