"""Reads what a request carries into the structs that its route names, strictly: a value that is
malformed, out of range or unknown is refused with the name of its field, never guessed.

A payload is kept as it was sent (`msgspec.Raw`) and only checked to be JSON.
"""

from __future__ import annotations

import codecs
import re
import sys
import typing
from collections.abc import Callable, Collection
from types import UnionType
from typing import Any
from urllib.parse import unquote_to_bytes

import msgspec
from msgspec import Raw, Struct

from monarq.errors import InvalidRequestError
from monarq.operations.codec import wire_hook
from monarq.operations.explaining import explain
from monarq.server.answers import HttpError
from monarq.server.outlines import LARGE, holds_lists, outline_check

_JSON_TYPE = re.compile(
    r"\s*(?:application|text)/(?:[\w.+-]+\+)?json\s*(?:;.*)?", re.ASCII | re.IGNORECASE
)
_CHUNK = 1 << 20

_decode_fields = msgspec.json.Decoder(dict[str, Raw]).decode
_decode_items = msgspec.json.Decoder(list[Raw]).decode
_encode = msgspec.json.Encoder().encode


# --- bodies --------------------------------------------------------------------------


def body_decoder(kind: Any, outline: type[Struct] | None = None) -> Callable[[bytes], Any]:
    """Decodes bodies of one type. An empty body counts as an object without fields.

    A type with lists needs an `outline` to take large bodies.
    """
    decode = msgspec.json.Decoder(kind, dec_hook=wire_hook).decode
    check_large = _refuse_large if outline is None else outline_check(outline)
    most_unchecked = LARGE if holds_lists(kind) else sys.maxsize

    def decoded(body: bytes) -> Any:
        try:
            if len(body) > most_unchecked:
                check_large(body)
            if not body.isascii():
                check_utf8(body)
            return decode(body or b"{}")
        except msgspec.ValidationError as error:
            raise InvalidRequestError(explain(error, kind)) from None
        except msgspec.DecodeError as error:
            raise InvalidRequestError(f"the body is not valid JSON: {error}") from None
        except UnicodeDecodeError as error:
            raise InvalidRequestError(f"the body is not UTF-8: {error.reason}") from None
        except RecursionError:
            raise InvalidRequestError("the body is nested too deeply") from None

    return decoded


def check_no_body(body: bytes) -> None:
    """Refuse a body of a call that takes none: a caller who sends options expects them to count.

    An empty object is accepted; Queen's clients send one.
    """
    if body.strip() not in (b"", b"{}", b"null"):
        raise InvalidRequestError("this call takes no body: send none, or {}")


def _refuse_large(body: bytes) -> None:
    raise HttpError(413, "body_too_large", f"the body of this call must have at most {LARGE} bytes")


def check_utf8(body: bytes) -> None:
    """What is kept raw is not looked at by the decoder; piece by piece, to need little memory."""
    if len(body) <= _CHUNK:
        body.decode()
        return
    decoder = codecs.getincrementaldecoder("utf-8")()
    for start in range(0, len(body), _CHUNK):
        decoder.decode(body[start : start + _CHUNK], start + _CHUNK >= len(body))


def is_json(headers: dict[str, str]) -> bool:
    """Whether a body, if there is one, is said to be plain JSON, or nothing is said of it."""
    kind = headers.get("content-type")
    if kind is not None and kind != "application/json" and not _JSON_TYPE.fullmatch(kind):
        return False
    return not _is_encoded(headers)


def not_json(headers: dict[str, str]) -> HttpError:
    if _is_encoded(headers):
        encoding = headers["content-encoding"]
        wanted = f"sent as it is, without Content-Encoding: {encoding[:100]}"
    else:
        kind = headers.get("content-type", "")
        wanted = f"JSON: send Content-Type: application/json, not {kind[:100]!r}"
    return HttpError(415, "unsupported_media_type", f"the body must be {wanted}")


def _is_encoded(headers: dict[str, str]) -> bool:
    return headers.get("content-encoding", "identity").strip().lower() not in ("identity", "")


def ignoring_decoder(
    decode: Callable[[bytes], Any], places: Collection[str]
) -> Callable[[bytes, InvalidRequestError], tuple[Any, tuple[str, ...]] | None]:
    """Return a decoder for a body that `decode` has refused with the error.

    It drops the fields at `places` (such as `items[].producerSub`), decodes again, and returns
    the value and the names of the dropped fields. It returns None if the error names no such
    field, or the body is too large to be searched for them.
    """
    paths = [place.replace("[]", ".[]").split(".") for place in places]
    names = [path[-1] for path in paths]

    def decoded(body: bytes, error: InvalidRequestError) -> tuple[Any, tuple[str, ...]] | None:
        if len(body) > LARGE or not any(f"no field {name!r}" in str(error) for name in names):
            return None
        found: dict[str, None] = {}
        for path in paths:
            body = _without(body, path, found)
        return decode(body), tuple(found)

    return decoded


def _without(text: bytes, path: list[str], found: dict[str, None]) -> bytes:
    """Return the JSON text without the field at this path. All other values keep their bytes."""
    step, *deeper = path
    try:
        if step == "[]":
            items = _decode_items(text)
            return b"[" + b",".join(_without(bytes(one), deeper, found) for one in items) + b"]"
        fields = _decode_fields(text)
    except (msgspec.MsgspecError, RecursionError):
        return text
    if step not in fields:
        return text
    if deeper:
        fields[step] = Raw(_without(bytes(fields[step]), deeper, found))
    else:
        del fields[step]
        found[step] = None
    return _encode(fields)


# --- queries -------------------------------------------------------------------------


class _NoParameters(Struct, forbid_unknown_fields=True):
    """The query of a call without parameters."""


def query_decoder(
    kind: type[Struct] | None, ignored: Collection[str] = ()
) -> Callable[[str], tuple[Any, tuple[str, ...]]]:
    """Return a decoder of query strings into one struct, and the ignored parameters that it found.

    Unknown parameters are refused if the struct forbids unknown fields (or there is none), and
    passed over otherwise; those of `ignored` are passed over in any case."""
    kind = kind or _NoParameters
    fields = {info.encode_name: info for info in msgspec.structs.fields(kind)}
    unadvised = {*getattr(kind, "unadvised", ()), *ignored}
    known = ", ".join(name for name in fields if name not in unadvised)
    others = f"there are {known}" if known else "this call takes none"
    lists = {name for name, info in fields.items() if _holds(info.type, list)}
    texts = {name for name, info in fields.items() if _holds(info.type, str)}
    strict = kind.__struct_config__.forbid_unknown_fields

    def decoded(query: str) -> tuple[Any, tuple[str, ...]]:
        values: dict[str, Any] = {}
        found: dict[str, None] = {}
        for name, value in split_query(query):
            if name in ignored:
                found[name] = None
            elif name not in fields:
                if strict:
                    raise InvalidRequestError(f"there is no parameter {name[:100]!r}; {others}")
            elif name in lists:
                values.setdefault(name, []).append(value)
            elif name in values:
                raise InvalidRequestError(f"{name} is given twice")
            elif value.lower() == "null" and name not in texts:
                # The decoder would take it for a value that was left out.
                raise InvalidRequestError(f"{name} must not be null")
            else:
                values[name] = value
        try:
            return msgspec.convert(values, kind, strict=False, dec_hook=wire_hook), tuple(found)
        except msgspec.ValidationError as error:
            raise InvalidRequestError(explain(error, kind)) from None

    return decoded


def _holds(kind: Any, wanted: type) -> bool:
    """Whether a field of this type may hold any such value; a choice of texts is no text."""
    origin = typing.get_origin(kind)
    if origin in (typing.Union, UnionType, typing.Annotated):
        return any(_holds(part, wanted) for part in typing.get_args(kind))
    return (origin or kind) is wanted


def split_query(query: str) -> list[tuple[str, str]]:
    """The names and values of a query string, percent-decoded."""
    return [
        (_unquoted(name), _unquoted(value))
        for part in query.split("&")
        if part
        for name, _, value in (part.partition("="),)
    ]


def _unquoted(text: str) -> str:
    try:
        return unquote_to_bytes(text.replace("+", " ")).decode()
    except UnicodeDecodeError:
        raise InvalidRequestError(f"{text[:100]!r} in the query is not UTF-8") from None
