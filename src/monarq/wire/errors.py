"""The body of every error."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct


class ErrorAnswer(Struct, frozen=True, kw_only=True):
    error: Annotated[str, Meta(description="what is wrong, and with which field")]
    code: Annotated[str, Meta(description="a stable word for programs")]


class TransactionRefused(Struct, frozen=True, kw_only=True):
    """Why nothing of a transaction was carried out."""

    success: bool
    error: str
    code: str
    operation: Annotated[int, Meta(description="which one failed, counted from 0")] | None
    cause: Annotated[str, Meta(description="the code of its own error")]
