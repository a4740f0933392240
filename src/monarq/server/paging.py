"""Pages of the API, put together from pages of the store: offsets, filters, bounds on bytes.

A store pages by cursor alone. An offset is read over, so it has a limit; a filter that finds
little stops after so many rows and says where to go on, so a page may be short, or empty, and
still have a `next`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from monarq.model import Page, Record
from monarq.model.pages import MOST_ROWS, Fetch
from monarq.wire.paging import PageQuery

T = TypeVar("T")

MAX_SCANNED = 20_000
"""Rows that one request looks at."""
MAX_BYTES = 32 << 20
"""About the most that the rows of one answer hold."""
_FIRST_STEP = 4


async def collect(
    fetch: Fetch[T],
    query: PageQuery,
    *,
    keep: Callable[[T], bool] | None = None,
    size: Callable[[T], int] | None = None,
    step: int = 1,
) -> Page[T]:
    """The page that the query asks for, of the rows to `keep`.

    With `size`, the bytes of a row, it is read in steps that fit, and cut at `MAX_BYTES`.
    A search that nobody goes on from reads at least `step` rows at once where they fit, and may
    find more than were asked for.
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


async def few_records(fetch: Fetch[Record], *, most: int) -> list[Record]:
    """Return the first records of a kind, at most so many and at most about `MAX_BYTES`."""
    return (await collect(fetch, PageQuery(limit=most), size=record_size)).rows


def record_size(record: Record) -> int:
    return len(record.value) + 300


def _fitting(scanned: int, seen_bytes: int, held: int) -> int:
    """How many more rows to read at once, by the size of those seen so far."""
    if not scanned:
        return _FIRST_STEP
    average = max(1, seen_bytes // scanned)
    # At most double, since the rows to come may be larger than those seen.
    return max(1, min(2 * scanned, (MAX_BYTES - held) // average))


def paged(query: PageQuery, page: Page[Any]) -> dict[str, Any]:
    """The fields of a `PageAnswer`."""
    return {"limit": query.limit, "offset": query.offset, "next": page.next}
