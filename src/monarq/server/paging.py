"""Pages of the API."""

from __future__ import annotations

from typing import Any

from monarq.model import Page, Record
from monarq.model.pages import Fetch
from monarq.store.collecting import collect
from monarq.wire.paging import PageQuery


async def few_records(fetch: Fetch[Record], *, most: int) -> list[Record]:
    """Return the first records of a kind, as many as `collect` allows."""
    return (await collect(fetch, PageQuery(limit=most), size=record_size)).rows


def record_size(record: Record) -> int:
    return len(record.value) + 300


def paged(query: PageQuery, page: Page[Any]) -> dict[str, Any]:
    """The fields of a `PageAnswer`."""
    return {"limit": query.limit, "offset": query.offset, "next": page.next}
