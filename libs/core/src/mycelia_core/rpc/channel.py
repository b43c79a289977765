"""Opens client channels: keep-alive, size limits, and retries of what is idempotent."""

import json
from typing import Any

import grpc

from mycelia_core.rpc.options import SHARED_OPTIONS

IDEMPOTENT_METHODS: dict[str, tuple[str, ...]] = {
    "mycelia.replay.v1.ReplayService": (
        "UpdatePriorities",
        "GetInfo",
        "Reset",
        "SaveCheckpoint",
        "ExchangeCounts",
    ),
    "mycelia.params.v1.ParamService": ("GetWeights",),
    "mycelia.run.v1.RunService": (
        "CreateRun",
        "GetRun",
        "JoinRun",
        "Heartbeat",
        "ReportEvaluation",
        "FinishRun",
        "LeaveRun",
    ),
}
"""The methods that gRPC itself repeats on `UNAVAILABLE`. Streams are resumed by
the clients that own them, which know what has been acknowledged."""

_RETRY_POLICY = {
    "maxAttempts": 5,
    "initialBackoff": "0.1s",
    "maxBackoff": "2s",
    "backoffMultiplier": 2,
    "retryableStatusCodes": ["UNAVAILABLE"],
}


def open_channel(address: str, *, read_ahead_bytes: int = 0) -> grpc.Channel:
    """Opens a channel to `host:port` or `unix:path`. Does not wait for the server.

    Idempotent unary calls are repeated on `UNAVAILABLE` with exponential
    back-off and jitter, up to five times and within the call's deadline.

    Args:
      address: the server's.
      read_ahead_bytes: how much of a stream may lie here unread; 0 lets gRPC decide, which takes a
        busy machine for a long line and reads hundreds of megabytes ahead.
    """
    ahead = [("grpc.http2.bdp_probe", 0), ("grpc.http2.lookahead_bytes", read_ahead_bytes)]
    return grpc.insecure_channel(address, options=_options() + (ahead if read_ahead_bytes else []))


def open_aio_channel(address: str) -> grpc.aio.Channel:
    """Opens a channel like `open_channel`, for the event loop that runs."""
    return grpc.aio.insecure_channel(address, options=_options())


def _options() -> list[tuple[str, Any]]:
    return [
        *SHARED_OPTIONS,
        ("grpc.enable_retries", 1),
        ("grpc.service_config", _service_config()),
        # A new server on the same port should be found within a second or two.
        ("grpc.initial_reconnect_backoff_ms", 100),
        ("grpc.max_reconnect_backoff_ms", 2_000),
    ]


def _service_config() -> str:
    names = [
        {"service": service, "method": method}
        for service, methods in IDEMPOTENT_METHODS.items()
        for method in methods
    ]
    return json.dumps({"methodConfig": [{"name": names, "retryPolicy": _RETRY_POLICY}]})
