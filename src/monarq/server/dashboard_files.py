"""The files of the dashboard, ready to be sent: typed, compressed and hashed once.

Reads only what lies below the package's `dashboard` directory and is of a known type; a path is
made of plain names, so none leads out of it. Knows nothing of requests.
"""

from __future__ import annotations

import gzip
import hashlib
import re
from pathlib import Path, PurePosixPath

from msgspec import Struct

ROOT = Path(__file__).parent.parent / "dashboard"
INDEX = "index.html"

TYPES = {
    ".css": b"text/css; charset=utf-8",
    ".html": b"text/html; charset=utf-8",
    ".ico": b"image/x-icon",
    ".js": b"text/javascript; charset=utf-8",
    ".json": b"application/json",
    ".png": b"image/png",
    ".svg": b"image/svg+xml",
    ".txt": b"text/plain; charset=utf-8",
    ".webmanifest": b"application/manifest+json",
    ".woff2": b"font/woff2",
}
_PACKED = frozenset({".ico", ".png", ".woff2"})
_SEGMENT = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*", re.ASCII)


class DashboardFile(Struct, frozen=True):
    content_type: bytes
    body: bytes
    tag: bytes
    compressed: bytes | None
    """By gzip; None where that gains nothing."""
    compressed_tag: bytes
    state: tuple[int, int]
    """Of the file when it was read."""


class DashboardFiles:
    """One a process. A file that was changed is read again, so that an update needs no restart."""

    def __init__(self, root: Path = ROOT) -> None:
        self._root = root
        self._files: dict[str, DashboardFile] = {}

    def known(self, path: str) -> DashboardFile | None:
        """The file, if it was read and is still the same. Costs a look at its times."""
        file = self._files.get(path)
        if file is None:
            return None
        return file if file.state == _state(self._root / path) else None

    def read(self, path: str) -> DashboardFile | None:
        """The file, read anew; None if there is none. Takes a while: not for the loop."""
        suffix = PurePosixPath(path).suffix
        content_type = TYPES.get(suffix)
        if content_type is None or not all(map(_SEGMENT.fullmatch, path.split("/"))):
            return None
        place = self._root / path
        state = _state(place)
        if state is None:
            return None
        body = place.read_bytes()
        tag = hashlib.sha256(body).hexdigest()[:20]
        compressed = None if suffix in _PACKED else gzip.compress(body, 9, mtime=0)
        if compressed is not None and len(compressed) >= len(body):
            compressed = None
        file = DashboardFile(
            content_type, body, f'"{tag}"'.encode(), compressed, f'"{tag}-gz"'.encode(), state
        )
        self._files[path] = file
        return file


def _state(place: Path) -> tuple[int, int] | None:
    try:
        status = place.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size
