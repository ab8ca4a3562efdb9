"""What both ends of a connection agree on: sizes, streams, metadata, and how they notice that the other is gone."""

from yarrow.config.settings import ServiceSettings

MAX_INT32 = 2**31 - 1
"""Milliseconds that never pass: the largest number that an option takes."""
MAX_CONNECTIONS = 1 << 20
"""More are not asked for: the largest number that an option takes makes grpc end the process."""
HANDSHAKE_MILLISECONDS = 10_000
"""Time in which a connection must have agreed on TLS and HTTP/2; then it is closed."""
_KEEPALIVE = (
    # A connection that is gone without a word is noticed after the sum of both.
    ("grpc.keepalive_time_ms", 15_000),
    ("grpc.keepalive_timeout_ms", 5_000),
)
_PINGS = (
    # Who pings an idle connection more often than every 10 s for the third time is cut off.
    ("grpc.http2.min_ping_interval_without_data_ms", 10_000),
    ("grpc.http2.max_ping_strikes", 3),
)
_RECONNECT = (
    # A service that was started again is there soon; grpc would wait up to two minutes between two tries.
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
        # One that never says what it is for is closed soon, or it would keep out those who know the token.
        ("grpc.server_handshake_timeout_ms", HANDSHAKE_MILLISECONDS),
        ("grpc.max_connection_idle_ms", min(limits.idle_seconds * 1000, MAX_INT32)),
        ("grpc.max_concurrent_streams", limits.streams),
        # What is between the two would be refused at random.
        ("grpc.max_metadata_size", limits.metadata_bytes),
        ("grpc.absolute_max_metadata_size", limits.metadata_bytes),
        # Without it a second process could take calls of this one's port.
        ("grpc.so_reuseport", 0),
        *_KEEPALIVE,
        *_PINGS,
    )
