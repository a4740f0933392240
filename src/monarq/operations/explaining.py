"""What is wrong with a request, in words that name the field and what it may be.

The decoder tells where it stopped and why; what would have been right is looked up in the type that
it decoded to. Only refused requests come here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec import inspect

_PATH = re.compile(r" - at `(?:key in )?\$\.?([^`]*)`$")
_STEP = re.compile(r"\[[^\]]*\]|[^.\[\]]+")
_UNKNOWN = re.compile(r"Object contains unknown field `(.*)`", re.DOTALL)
_MISSING = re.compile(r"Object missing required field `(.*)`", re.DOTALL)
_NO_MATCH = "Expected `str` matching regex "
_EXPECTED = re.compile(r"Expected `([^`]*)`(.*?)(?:, got `([^`]*)`)?", re.DOTALL)
_NO_CHOICE = "Invalid enum value "
_NO_TAG = "Invalid value "
_NO_TIME = "Invalid RFC3339 encoded datetime"
_WORDS = {
    "int": "a whole number",
    "float": "a number",
    "str": "text",
    "bool": "true or false",
    "array": "an array",
    "object": "an object",
    "null": "null",
}


def explain(error: msgspec.MsgspecError, kind: Any) -> str:
    """A message of the decoder for `kind`, with the field in front of what is wrong with it."""
    text = str(error)
    found = _PATH.search(text)
    place = found[1] if found else ""
    wrong = text[: found.start()] if found else text
    within = f"{place}: " if place else ""
    if missing := _MISSING.fullmatch(wrong):
        return f"{within}{missing[1]} is missing"
    if unknown := _UNKNOWN.fullmatch(wrong):
        return f"{within}there is no field {unknown[1][:100]!r}; there are {_fields(kind, place)}"
    if wrong.startswith(_NO_CHOICE):
        chosen = wrong.removeprefix(_NO_CHOICE)
        return f"{place} must be one of {_choices(kind, place)}, not {chosen}"
    if wrong.startswith(_NO_TAG):
        tags = ", ".join(str(one) for one in _tags(kind, place))
        return f"{place} must be one of {tags}, not {wrong.removeprefix(_NO_TAG)}"
    if wrong == _NO_TIME:
        return f"{place} must be a time in ISO 8601 with a time zone, such as 2026-01-31T12:00:00Z"
    if wrong.startswith("must "):  # a hook of ours says so
        return f"{place} {wrong}"
    if wrong.startswith(_NO_MATCH) and (described := _description(kind, place)):
        return f"{place} must have {described}"
    if expected := _EXPECTED.fullmatch(wrong):
        given = f", not {_in_words(expected[3])}" if expected[3] else ""
        return f"{place or 'the body'} must be {_in_words(expected[1])}{expected[2]}{given}"
    return f"{place or 'the body'}: {wrong}"


def _in_words(names: str) -> str:
    """`null` is a value that was left out, so nobody needs to be told of it."""
    known = [_WORDS.get(name, name) for name in names.split(" | ") if name != "null"]
    return " or ".join(known) or "null"


def _description(kind: Any, place: str) -> str:
    """Return the description of the text type of a field, or nothing."""
    above, _, name = place.rpartition(".")
    for struct in _types_at(kind, above):
        for field in struct.fields if isinstance(struct, inspect.StructType) else ():
            if field.encode_name == name:
                parts = field.type.types if isinstance(field.type, inspect.UnionType) else ()
                for one in (field.type, *parts):
                    if isinstance(one, inspect.Metadata):
                        return str((one.extra_json_schema or {}).get("description", ""))
    return ""


def _fields(kind: Any, place: str) -> str:
    return ", ".join(
        field.encode_name
        for one in _types_at(kind, place)
        if isinstance(one, inspect.StructType)
        for field in one.fields
    )


def _choices(kind: Any, place: str) -> str:
    return ", ".join(
        str(value)
        for one in _types_at(kind, place)
        if isinstance(one, inspect.EnumType | inspect.LiteralType)
        for value in (one.values if isinstance(one, inspect.LiteralType) else one.cls)
    )


def _tags(kind: Any, place: str) -> list[str | int]:
    """What the field may say that tells the structs apart which may stand here."""
    above = place.rpartition(".")[0]
    return [
        one.tag
        for one in _types_at(kind, above)
        if isinstance(one, inspect.StructType) and one.tag is not None
    ]


def _types_at(kind: Any, place: str) -> list[inspect.Type]:
    """What may stand at a place such as `items[0].status`."""
    found = list(_alternatives(inspect.type_info(kind)))
    for step in _STEP.findall(place):
        found = [one for each in found for one in _below(each, step)]
    return found


def _below(kind: inspect.Type, step: str) -> Iterator[inspect.Type]:
    if isinstance(kind, inspect.StructType):
        for field in kind.fields:
            if field.encode_name == step:
                yield from _alternatives(field.type)
    elif isinstance(kind, inspect.CollectionType):
        yield from _alternatives(kind.item_type)
    elif isinstance(kind, inspect.DictType):
        yield from _alternatives(kind.value_type)


def _alternatives(kind: inspect.Type) -> Iterator[inspect.Type]:
    if isinstance(kind, inspect.UnionType):
        for one in kind.types:
            yield from _alternatives(one)
    elif isinstance(kind, inspect.Metadata):
        yield from _alternatives(kind.type)
    else:
        yield kind
