"""gRPC options of both ends of a connection: sizes, streams, metadata and keepalive."""

from yarrow.config.settings import ServiceSettings

MAX_INT32 = 2**31 - 1
"""Milliseconds that never elapse: the largest value of an option."""
MAX_CONNECTIONS = 1 << 20
"""Maximum connections requested of grpc, which aborts the process for the largest value of an option."""
HANDSHAKE_MILLISECONDS = 10_000
"""Timeout in milliseconds for the TLS and HTTP/2 handshake of a connection."""
_KEEPALIVE = (
    # A silently lost connection is detected after the sum of both.
    ("grpc.keepalive_time_ms", 15_000),
    ("grpc.keepalive_timeout_ms", 5_000),
)
_PINGS = (
    # A client that pings an idle connection more often than every 10 s is disconnected the third time.
    ("grpc.http2.min_ping_interval_without_data_ms", 10_000),
    ("grpc.http2.max_ping_strikes", 3),
)
_RECONNECT = (
    # A restarted service is soon available; by default grpc waits up to two minutes between attempts.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 1_000),
    ("grpc.max_reconnect_backoff_ms", 2_000),
)


def make_client_options(limits: ServiceSettings) -> tuple[tuple[str, int], ...]:
    """Return the options of a client's channel."""
    return (
        ("grpc.max_receive_message_length", limits.message_bytes_out),
        ("grpc.max_send_message_length", limits.message_bytes_in),
        *_KEEPALIVE,
        *_RECONNECT,
    )


def make_server_options(limits: ServiceSettings) -> tuple[tuple[str, int], ...]:
    """Return the options of the server."""
    return (
        ("grpc.max_receive_message_length", limits.message_bytes_in),
        ("grpc.max_send_message_length", limits.message_bytes_out),
        ("grpc.max_allowed_incoming_connections", min(limits.connections, MAX_CONNECTIONS)),
        # A connection without a handshake is closed soon, or it would keep out clients with the token.
        ("grpc.server_handshake_timeout_ms", HANDSHAKE_MILLISECONDS),
        ("grpc.max_connection_idle_ms", min(limits.idle_seconds * 1000, MAX_INT32)),
        ("grpc.max_concurrent_streams", limits.streams),
        # Sizes between the two limits would be refused at random.
        ("grpc.max_metadata_size", limits.metadata_bytes),
        ("grpc.absolute_max_metadata_size", limits.metadata_bytes),
        # Otherwise a second process could accept calls on this port.
        ("grpc.so_reuseport", 0),
        *_KEEPALIVE,
        *_PINGS,
    )
