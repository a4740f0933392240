"""Extending a lease, in and out. The new deadline has three names, for the sake of all clients
that read it."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct, field


class ExtendBody(Struct, rename="camel", forbid_unknown_fields=True):
    seconds: Annotated[float, Meta(ge=0.001, le=7 * 86_400)] | None = None


class ExtendAnswer(Struct, rename="camel"):
    index: int
    lease_id: str
    success: bool
    error: str | None
    renewed: int
    expires_at: str
    new_expires_at: str
    lease_expires_at: str = field(name="lease_expires_at")
