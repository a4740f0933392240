"""Lists that are read a page at a time."""

from __future__ import annotations

from typing import Generic, TypeVar

from msgspec import Struct

T = TypeVar("T")


class Page(Struct, Generic[T], frozen=True):
    rows: list[T]
    next: str | None = None
    """Pass as `after` to go on; None at the end. Rows that come or go meanwhile are never
    repeated, and none that stayed is skipped."""
