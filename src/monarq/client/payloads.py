"""Turns payloads into JSON and back, checked against the type that a queue was given.

A msgspec Struct, a dataclass, a TypedDict, a pydantic model, or any type that JSON has.
"""

from __future__ import annotations

import math
from typing import Any, Generic, TypeVar

import msgspec

from monarq.errors import InvalidRequestError, PayloadError

T = TypeVar("T")

_encoder = msgspec.json.Encoder()


class PayloadType(Generic[T]):
    """One type of payload. `Any` takes and gives whatever JSON can hold."""

    def __init__(self, kind: Any = Any) -> None:
        self.kind = kind
        self._is_pydantic = hasattr(kind, "model_validate_json")
        if self._is_pydantic:
            return
        try:
            self._decoder: msgspec.json.Decoder[T] = msgspec.json.Decoder(kind)
        except TypeError as error:
            raise InvalidRequestError(f"{kind!r} cannot be a payload: {error}") from None

    def encode(self, value: T) -> bytes:
        """As JSON; `InvalidRequestError` if it is not of the type, or JSON cannot hold it."""
        encoded = as_json(value, "the payload")
        if self.kind is not Any:
            try:
                self.decode(encoded)
            except PayloadError as error:
                raise InvalidRequestError(str(error)) from None
        return encoded

    def decode(self, data: bytes) -> T:
        """`PayloadError` if it does not fit the type."""
        try:
            if self._is_pydantic:
                return self.kind.model_validate_json(data)  # type: ignore[no-any-return]
            return self._decoder.decode(data)
        except (msgspec.MsgspecError, ValueError) as error:
            wanted = "cannot be read" if self.kind is Any else f"is no {self._name}"
            raise PayloadError(f"the payload {wanted}: {error}") from None

    @property
    def _name(self) -> str:
        return getattr(self.kind, "__name__", None) or str(self.kind)


def as_json(value: object, what: str) -> bytes:
    """Return it as JSON; raise `InvalidRequestError` if JSON cannot hold it."""
    try:
        if hasattr(value, "model_dump_json"):
            dumped: bytes = value.model_dump_json().encode()
            return dumped
        encoded = _encoder.encode(value)
        if b"null" in encoded and has_no_number(msgspec.to_builtins(value)):
            raise ValueError("it has a number that JSON has not: nan or infinity")
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise InvalidRequestError(f"{what} cannot be written as JSON: {error}") from None
    return encoded


def has_no_number(value: Any) -> bool:
    """Whether there is a nan or an infinity in it, which the encoder writes as null."""
    if isinstance(value, float):
        return not math.isfinite(value)
    if isinstance(value, dict):
        return any(map(has_no_number, value.values()))
    return isinstance(value, list | tuple) and any(map(has_no_number, value))
