"""What a client may ask of the server's memory and patience."""

from __future__ import annotations

from typing import Self

from msgspec import Struct

from monarq.config import Settings


class Limits(Struct, frozen=True, kw_only=True):
    head_bytes: int = 64 << 10
    headers: int = 200
    body_bytes: int = 64 << 20
    bodies_bytes: int = 128 << 20
    """Of all bodies that are still coming in, together."""
    unsent_bytes: int = 512 << 20
    """Of all answers that clients have not taken yet, together."""
    read_ahead_bytes: int = 64 << 10
    """What is read of a client's next requests while one of it is being answered."""
    connections: int = 20_000
    connections_per_address: int = 10_000
    turned_away: int = 128
    """Connections over a limit that are told so; further ones are cut at once."""
    event_streams_per_address: int = 128
    head_seconds: float = 10.0
    body_seconds: float = 30.0
    """Longest pause within a body."""
    body_rate: int = 16 << 10
    """Bytes per second that a body must come with on average, after `body_seconds`."""
    stalled_seconds: float = 1.0
    """A body that does not move for so long is the first to go when memory is short."""
    keep_alive_seconds: float = 75.0
    write_seconds: float = 60.0
    linger_seconds: float = 2.0
    """How long a refused client may go on sending before the connection is cut."""

    @classmethod
    def of(cls, settings: Settings) -> Self:
        return cls(
            head_bytes=settings.max_header_bytes,
            body_bytes=settings.max_body_bytes,
            bodies_bytes=max(settings.max_body_bytes, settings.inbox_max_bytes),
            unsent_bytes=4 * max(settings.max_body_bytes, settings.inbox_max_bytes),
            connections=settings.max_connections,
            connections_per_address=settings.max_connections_per_address,
            event_streams_per_address=settings.max_event_streams_per_address,
            head_seconds=settings.header_timeout_seconds,
            body_seconds=settings.body_timeout_seconds,
            body_rate=settings.body_min_bytes_per_second,
            keep_alive_seconds=settings.keep_alive_seconds,
            write_seconds=settings.write_timeout_seconds,
        )
