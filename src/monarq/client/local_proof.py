"""Proves to a broker on this machine that the client runs as the same user.

A broker without authentication lets only its own user run commands (`monarq.local_token`). The
token is read from that user's file, and sent to loopback addresses only.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from urllib.parse import urlsplit

from monarq.local_token import HEADER, read_token
from monarq.settings_checks import is_loopback

_READ_AGAIN_SECONDS = 1.0


class LocalProof:
    def __init__(self, urls: Sequence[str]) -> None:
        hosts = {url: urlsplit(url).hostname or "" for url in urls}
        self._local = {url for url, host in hosts.items() if is_loopback(host)}
        self._headers: dict[str, str] | None = None
        self._read_again_at = 0.0
        self.patterns = [
            f"all://[{host}]" if ":" in host else f"all://{host}"
            for url, host in hosts.items()
            if url in self._local
        ]
        """The local addresses, as httpx writes patterns of URLs."""

    def headers(self, url: str) -> dict[str, str] | None:
        """The headers that prove the user to the broker at `url`, one of those given."""
        if url not in self._local:
            return None
        now = time.monotonic()
        if now >= self._read_again_at:
            # The broker may have made the file, or replaced it, since.
            self._read_again_at = now + _READ_AGAIN_SECONDS
            token = read_token()
            self._headers = None if token is None else {HEADER: token}
        return self._headers
