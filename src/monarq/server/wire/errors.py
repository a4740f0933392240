"""The body of every error."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct


class ErrorAnswer(Struct, frozen=True, kw_only=True):
    error: Annotated[str, Meta(description="what is wrong, and with which field")]
    code: Annotated[str, Meta(description="a stable word for programs")]
