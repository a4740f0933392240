"""What all lists share: how many rows, and from where on."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

MAX_OFFSET = 10_000

Limit = Annotated[int, Meta(ge=1, le=1000, description="how many rows at most")]
Offset = Annotated[
    int,
    Meta(
        ge=0,
        le=MAX_OFFSET,
        description="how many rows to pass over; to go further, or while rows come and go, "
        "page with `after`",
    ),
]
After = Annotated[str, Meta(min_length=1, max_length=4096, description="`next` of the page before")]
Next = Annotated[
    str, Meta(description="pass it as `after` for the next page; null on the last one")
]


class PageQuery(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    limit: Limit = 100
    offset: Offset = 0
    after: After | None = None


class PageAnswer(Struct, frozen=True, kw_only=True, rename="camel"):
    limit: int
    offset: int
    next: Next | None
