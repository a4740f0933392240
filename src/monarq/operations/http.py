"""What both ends of HTTP derive from an operation's routes."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta, Raw, Struct

from monarq.operations.operation import Operation, Route

_PARAMETER = re.compile(r"\{(\w+)\}")


@lru_cache(maxsize=1024)
def in_path(route: Route) -> tuple[str, ...]:
    """Return the names of the parameters in the path."""
    return tuple(_PARAMETER.findall(route.path))


def has_body(operation: type[Operation[Any]], route: Route) -> bool:
    """Return whether the route takes its fields from a body, not from the query."""
    return route.method not in ("GET", "DELETE") and input_type(operation, route) is not None


@lru_cache(maxsize=1024)
def input_type(operation: type[Operation[Any]], route: Route) -> type[Struct] | None:
    """Return the struct of a route's query or body; None if there is nothing to give.

    It has the fields that no route names in its path, and those required ones that this route
    does not name in its path.
    """
    if route.body is not None:
        return route.body
    own = in_path(route)
    named = {name for each in operation.routes for name in in_path(each)}
    hints = get_type_hints(operation, include_extras=True)
    fields = [
        (info.name, _on_wire(hints[info.name]), _declared(info))
        for info in msgspec.structs.fields(operation)
        if info.encode_name not in named or (info.required and info.encode_name not in own)
    ]
    if not fields:
        return None
    name = route.name or operation.__name__
    return msgspec.defstruct(
        f"{name[0].upper()}{name[1:]}{'Query' if route.method in ('GET', 'DELETE') else 'Body'}",
        fields,
        namespace={"declared_by": operation},
        frozen=True,
        kw_only=True,
        forbid_unknown_fields=True,
    )


def _declared(info: msgspec.structs.FieldInfo) -> Any:
    if info.default_factory is not msgspec.NODEFAULT:
        return msgspec.field(name=info.encode_name, default_factory=info.default_factory)
    return msgspec.field(name=info.encode_name, default=info.default)


def _on_wire(kind: Any) -> Any:
    """Return the type of a field in a query or body: JSON that is bytes in Python stays raw."""
    note = _json_note(kind)
    return kind if note is None else Annotated[Raw, Meta(description=note.description)]


@lru_cache(maxsize=1024)
def json_fields(operation: type[Operation[Any]]) -> frozenset[str]:
    """Return the JSON names of the fields whose bytes are JSON; all other bytes are base64."""
    hints = get_type_hints(operation, include_extras=True)
    return frozenset(
        info.encode_name
        for info in msgspec.structs.fields(operation)
        if _json_note(hints[info.name]) is not None
    )


def _json_note(kind: Any) -> Meta | None:
    if get_origin(kind) is Annotated:
        for note in get_args(kind)[1:]:
            if isinstance(note, Meta) and (note.extra or {}).get("json"):
                return note
    return None
