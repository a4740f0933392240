"""Lists that are read a page at a time, and how to read them to their end."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Generic, TypeVar

from msgspec import Struct

T = TypeVar("T")

MOST_ROWS = 1000
"""Of a page of most lists."""


class Page(Struct, Generic[T], frozen=True):
    rows: list[T]
    next: str | None = None
    """Pass as `after` to go on; None at the end. Rows that come or go meanwhile are never
    repeated, and none that stayed is skipped."""


Fetch = Callable[[int, str | None], Awaitable[Page[T]]]
"""Asks for a page: how many rows, after which token."""


def all_rows(fetch: Callable[[int, str | None], Page[T]], *, step: int = MOST_ROWS) -> Iterator[T]:
    """All rows, page by page as they are asked for."""
    after = None
    while True:
        page = fetch(step, after)
        yield from page.rows
        after = page.next
        if after is None:
            return


async def walk(fetch: Fetch[T], *, step: int = MOST_ROWS) -> AsyncIterator[T]:
    """All rows, page by page; other calls go in between."""
    after = None
    while True:
        page = await fetch(step, after)
        for row in page.rows:
            yield row
        after = page.next
        if after is None:
            return
