"""What commands that read or write many lines share: the lines, and how far they have come."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

from monarq.errors import InvalidRequestError

_REDRAW_SECONDS = 0.1


def numbered_lines(file: str) -> Iterator[tuple[int, str]]:
    """The lines of a file with something in them, each with its number; `-` is stdin. Read as
    they are wanted, so that a file may be of any size."""
    if file == "-":
        yield from _numbered(sys.stdin, "stdin")
        return
    try:
        with Path(file).open(encoding="utf-8") as lines:
            yield from _numbered(lines, file)
    except OSError as error:
        raise InvalidRequestError(f"cannot read {file}: {error.strerror}") from None


def _numbered(lines: Iterable[str], name: str) -> Iterator[tuple[int, str]]:
    try:
        for number, line in enumerate(lines, 1):
            if line.strip():
                yield number, line.rstrip("\r\n")
    except UnicodeDecodeError:
        raise InvalidRequestError(f"{name} is not UTF-8 text") from None


class Progress:
    """A line on stderr that says how far it is, for `with`. Only for people at a terminal."""

    def __init__(self, what: str, total: int | None = None) -> None:
        self._what = what
        self._total = total
        self._is_shown = sys.stderr.isatty()
        self._drawn_at = 0.0
        self.count = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._is_shown and self._drawn_at:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)

    def add(self, count: int) -> None:
        self.count += count
        now = time.monotonic()
        if self._is_shown and now - self._drawn_at > _REDRAW_SECONDS:
            self._drawn_at = now
            of = f" of {self._total:,}" if self._total is not None else ""
            print(f"\r{self.count:,}{of} {self._what}", end="", file=sys.stderr, flush=True)
