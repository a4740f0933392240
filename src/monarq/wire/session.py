"""Who is signed in at the dashboard, in and out."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

from monarq.wire.shown import TimeText

RoleName = Literal["read", "write", "jobs", "admin"]


class SignInBody(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    token: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=16_384,
            description="a JSON web token or an API key; with `auth` off, the code of the link "
            "that `monarq serve` printed",
        ),
    ]


class SessionAnswer(Struct, frozen=True, kw_only=True, rename="camel"):
    auth: bool
    """Whether callers must say who they are."""
    signed_in: bool
    subject: str | None
    role: RoleName | None
    roles: list[RoleName]
    """All that the role includes. With `auth` off, `jobs` is among them only if the caller proved
    to be the user who runs the broker."""
    csrf_token: str | None
    """What calls that change something must send as `X-CSRF-Token`; null where there is no
    cookie."""
    expires_at: TimeText | None
    version: str | None
    """Only for those who may look."""
    store: str | None
    """The kind of store: `sqlite` or `postgresql`; only for those who may look."""
