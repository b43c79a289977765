"""What a server exports to Prometheus: its calls, and figures that a service adds."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import grpc
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, start_http_server
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from mycelia_core.rpc.errors import StatusError

READ_SECONDS = 2.0
"""How long a scrape waits for the event loop that owns what is read."""

_SECONDS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)


@dataclass(frozen=True, slots=True)
class Reading:
    """One value that a service exports, as of now."""

    name: str
    """Without the prefix `mycelia_`; ends in its unit."""

    value: float
    labels: dict[str, str] = field(default_factory=dict)
    is_total: bool = False
    """Whether it only ever grows: a counter, with `_total` behind its name."""


@dataclass(frozen=True, slots=True)
class HistogramReading:
    """One histogram that a service exports, as of now."""

    name: str
    bounds: tuple[float, ...]
    """Upper bounds; the last range has none."""

    counts: tuple[int, ...]
    """One more than bounds."""

    sum: float
    labels: dict[str, str] = field(default_factory=dict)


Readings = Iterable[Reading | HistogramReading]


class Metrics:
    """Counts a server's calls and serves all figures over HTTP. Any thread may scrape it.

    metrics = Metrics()
    server = Server(bind, interceptors=[metrics.interceptor])
    metrics.add(read)  # on the event loop
    metrics.serve("127.0.0.1", 9100)
    ...
    metrics.close()
    """

    def __init__(self) -> None:
        """Counts from now on."""
        self._registry = CollectorRegistry()
        self.interceptor = CallCounter(self._registry)
        self._close: Callable[[], None] = lambda: None

    def add(self, read: Callable[[], Readings]) -> None:
        """Exports what `read` returns at each scrape. It is called on the running event loop."""
        self._registry.register(_Reader(read, asyncio.get_running_loop()))

    def serve(self, host: str, port: int) -> int:
        """Listens for scrapes of `/metrics` in a daemon thread; returns the port.

        Raises:
          OSError: the port is taken.
        """
        server, thread = start_http_server(port, host, registry=self._registry)

        def close() -> None:
            server.shutdown()
            server.server_close()
            thread.join(1.0)

        self._close = close
        return int(server.server_port)

    def close(self) -> None:
        """Stops listening. Safe to call again."""
        self._close()
        self._close = lambda: None


class CallCounter(grpc.aio.ServerInterceptor):
    """Counts calls by method and status, and times those that are not streams."""

    def __init__(self, registry: CollectorRegistry) -> None:
        """Registers its figures."""
        self._calls = Counter(
            "mycelia_rpc_calls", "Calls that have ended.", ["method", "status"], registry=registry
        )
        self._open = Gauge(
            "mycelia_rpc_open_calls", "Calls that go on.", ["method"], registry=registry
        )
        self._seconds = Histogram(
            "mycelia_rpc_seconds",
            "How long unary calls took.",
            ["method"],
            buckets=_SECONDS,
            registry=registry,
        )

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Any:
        """Wraps the method's handler."""
        handler = await continuation(handler_call_details)
        if handler is None:
            return handler
        method = str(handler_call_details.method).lstrip("/")
        if handler.response_streaming:
            return self._streaming(handler, method)
        return self._unary(handler, method)

    def _unary(self, handler: Any, method: str) -> Any:
        inner = handler.stream_unary if handler.request_streaming else handler.unary_unary

        async def call(request: Any, context: Any) -> Any:
            with self._counted(method), self._seconds.labels(method).time():
                return await inner(request, context)

        make = (
            grpc.stream_unary_rpc_method_handler
            if handler.request_streaming
            else grpc.unary_unary_rpc_method_handler
        )
        return make(call, handler.request_deserializer, handler.response_serializer)

    def _streaming(self, handler: Any, method: str) -> Any:
        inner = handler.stream_stream if handler.request_streaming else handler.unary_stream

        async def call(request: Any, context: Any) -> AsyncIterator[Any]:
            with self._counted(method):
                async for response in inner(request, context):
                    yield response

        make = (
            grpc.stream_stream_rpc_method_handler
            if handler.request_streaming
            else grpc.unary_stream_rpc_method_handler
        )
        return make(call, handler.request_deserializer, handler.response_serializer)

    @contextmanager
    def _counted(self, method: str) -> Iterator[None]:
        status = grpc.StatusCode.OK.name
        self._open.labels(method).inc()
        try:
            yield
        except (asyncio.CancelledError, GeneratorExit):
            status = grpc.StatusCode.CANCELLED.name
            raise
        except Exception as error:
            code = error.code if isinstance(error, StatusError) else grpc.StatusCode.INTERNAL
            status = code.name
            raise
        finally:
            self._open.labels(method).dec()
            self._calls.labels(method, status).inc()


class _Reader(Collector):
    """Turns readings into what the library exports."""

    def __init__(self, read: Callable[[], Readings], loop: asyncio.AbstractEventLoop) -> None:
        self._read = read
        self._loop = loop

    def describe(self) -> Iterable[Metric]:
        # Nothing is read before the first scrape.
        return ()

    def collect(self) -> Iterable[Metric]:
        families: dict[str, Any] = {}
        for reading in self._read_on_loop():
            labels = list(reading.labels.values())
            if isinstance(reading, HistogramReading):
                self._family(families, reading, HistogramMetricFamily).add_metric(
                    labels, buckets=_buckets(reading), sum_value=reading.sum
                )
            else:
                kind = CounterMetricFamily if reading.is_total else GaugeMetricFamily
                self._family(families, reading, kind).add_metric(labels, reading.value)
        return families.values()

    def _read_on_loop(self) -> Readings:
        async def answer() -> Readings:
            return list(self._read())

        try:
            return asyncio.run_coroutine_threadsafe(answer(), self._loop).result(READ_SECONDS)
        except (RuntimeError, TimeoutError):
            return ()  # the server is stopping

    def _family(
        self, families: dict[str, Any], reading: Reading | HistogramReading, kind: type
    ) -> Any:
        name = f"mycelia_{reading.name}"
        if name not in families:
            families[name] = kind(name, name.replace("_", " "), labels=list(reading.labels))
        return families[name]


def _buckets(reading: HistogramReading) -> list[list[Any]]:
    total, buckets = 0, []
    for bound, count in zip((*reading.bounds, "+Inf"), reading.counts, strict=True):
        total += count
        buckets.append([str(bound), total])
    return buckets
