"""Puts a page together from pages of the store: offsets, filters, bounds on bytes.

The stores' lists page by token alone. Rows before an offset are read and dropped, so an offset has
a limit. A filter that finds little stops after `MAX_SCANNED` rows, so a page may be short, or
empty, and still have a `next`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

from monarq.model import Page
from monarq.model.pages import MOST_ROWS, Fetch

T = TypeVar("T")

MAX_SCANNED = 20_000
"""Rows that one request reads at most."""
MAX_BYTES = 32 << 20
"""About the most bytes that the rows of one page hold."""
_FIRST_STEP = 4


class PageRequest(Protocol):
    @property
    def limit(self) -> int: ...

    @property
    def offset(self) -> int: ...

    @property
    def after(self) -> str | None: ...


async def collect(
    fetch: Fetch[T],
    query: PageRequest,
    *,
    keep: Callable[[T], bool] | None = None,
    size: Callable[[T], int] | None = None,
    step: int = 1,
) -> Page[T]:
    """Return the page that the query asks for, of the rows to `keep`.

    With `size`, the bytes of a row, rows are read in steps that fit into memory, and the page ends
    at `MAX_BYTES`. A search whose caller never asks for the next page reads at least `step` rows
    at a time, and may find more rows than asked for.
    """
    rows: list[T] = []
    after = query.after
    skip = query.offset
    scanned = held = seen_bytes = 0
    while True:
        # Never more rows than are still wanted, so that the page ends where the token says.
        want = min(max(skip + query.limit - len(rows), step), MOST_ROWS)
        if size is not None:
            want = min(want, _fitting(scanned, seen_bytes, held))
        page = await fetch(want, after)
        scanned += len(page.rows)
        for row in page.rows:
            if size is not None:
                seen_bytes += size(row)
            if keep is not None and not keep(row):
                continue
            if skip:
                skip -= 1
                continue
            rows.append(row)
            held += size(row) if size is not None else 0
        after = page.next
        is_full = len(rows) >= query.limit or scanned >= MAX_SCANNED or held >= MAX_BYTES
        if after is None or is_full:
            return Page(rows, after)


def _fitting(scanned: int, seen_bytes: int, held: int) -> int:
    """Return how many rows to read next, by the average size of the rows so far."""
    if not scanned:
        return _FIRST_STEP
    average = max(1, seen_bytes // scanned)
    # At most double, since the rows to come may be larger than those seen.
    return max(1, min(2 * scanned, (MAX_BYTES - held) // average))
