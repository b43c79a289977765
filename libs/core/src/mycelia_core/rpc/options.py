"""The channel options that both ends of a connection must agree on."""

MAX_MESSAGE_BYTES = 4 * 1024 * 1024
"""The largest message either end takes: gRPC's own default, so that foreign
clients need not change a setting. Larger payloads are split."""

KEEPALIVE_MILLISECONDS = 10_000
"""How often an idle connection is probed."""

KEEPALIVE_TIMEOUT_MILLISECONDS = 5_000
"""How long a probe may go unanswered before the connection counts as dead."""

SHARED_OPTIONS: list[tuple[str, int]] = [
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    ("grpc.keepalive_time_ms", KEEPALIVE_MILLISECONDS),
    ("grpc.keepalive_timeout_ms", KEEPALIVE_TIMEOUT_MILLISECONDS),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
]

SERVER_OPTIONS: list[tuple[str, int]] = [
    *SHARED_OPTIONS,
    # Without this a second server binds the same port and takes half the calls.
    ("grpc.so_reuseport", 0),
    # Clients probe every 10 s; a server that expects fewer hangs up on them.
    ("grpc.http2.min_ping_interval_without_data_ms", KEEPALIVE_MILLISECONDS // 2),
    ("grpc.http2.max_ping_strikes", 0),
]
