"""What the wire structs say about their fields: the texts that stand below them in the source.

Where there is no source to read (some ways of packing an application) there are no notes.
"""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Iterable
from functools import lru_cache
from itertools import pairwise
from typing import Any

import msgspec
from msgspec import Struct
from msgspec import inspect as shapes


def field_notes(kind: type[Struct]) -> dict[str, str]:
    """By the field's name on the wire."""
    names = {info.name: info.encode_name for info in msgspec.structs.fields(kind)}
    notes: dict[str, str] = {}
    # The struct of a query or body that is derived from an operation has the operation's notes.
    kind = getattr(kind, "declared_by", kind)
    for base in reversed(kind.__mro__):
        if issubclass(base, Struct) and base is not Struct:
            notes |= _own_notes(base)
    return {names[name]: note for name, note in notes.items() if name in names}


def _own_notes(kind: type[Struct]) -> dict[str, str]:
    definition = _classes(kind.__module__).get(kind.__name__)
    notes = {}
    for field, text in pairwise(definition.body if definition else ()):
        match field, text:
            case (
                ast.AnnAssign(target=ast.Name(id=name)),
                ast.Expr(value=ast.Constant(value=str(note))),
            ):
                notes[name] = " ".join(note.split())
    return notes


@lru_cache(maxsize=64)
def _classes(module: str) -> dict[str, ast.ClassDef]:
    try:
        tree = ast.parse(inspect.getsource(sys.modules[module]))
    except (OSError, TypeError):
        return {}
    return {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}


def structs_in(types: Iterable[Any]) -> dict[str, type[Struct]]:
    """All structs that the types are made of, by name."""
    found: dict[str, type[Struct]] = {}
    left: list[Any] = list(shapes.multi_type_info(types))
    while left:
        shape = left.pop()
        if isinstance(shape, shapes.StructType):
            if shape.cls.__name__ in found:
                continue
            found[shape.cls.__name__] = shape.cls
        for name in getattr(shape, "__struct_fields__", ()):
            part = getattr(shape, name)
            parts = part if isinstance(part, tuple) else (part,)
            left += [one for one in parts if isinstance(one, (shapes.Type, shapes.Field))]
    return found
