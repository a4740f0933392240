"""Whether anybody listens at a URL, found out at once."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from urllib.parse import SplitResult, urlsplit

from monarq.errors import InvalidRequestError, StoreUnavailableError

_SECONDS = 5.0


def check_reachable(urls: Sequence[str]) -> None:
    """Return if somebody listens at one of them; else the error says how to start a broker."""
    reasons = []
    for url in urls:
        parts = _parts(url)
        if parts is None or parts.scheme not in ("http", "https") or not parts.hostname:
            raise InvalidRequestError(f"--url must be like http://localhost:6632, not {url!r}")
        try:
            port = parts.port or (443 if parts.scheme == "https" else 80)
        except ValueError:
            raise InvalidRequestError(f"--url: {url!r} has no valid port") from None
        try:
            socket.create_connection((parts.hostname, port), timeout=_SECONDS).close()
        except OSError as error:
            reasons.append(f"{url}: {error.strerror or error}")
        else:
            return
    raise StoreUnavailableError(
        f"no broker answers ({'; '.join(reasons)}): start one with `monarq serve`, or correct --url"
    )


def _parts(url: str) -> SplitResult | None:
    """None if it is no URL at all, such as one with half of a bracket."""
    try:
        return urlsplit(url)
    except ValueError:
        return None
