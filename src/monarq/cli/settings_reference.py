"""The settings as a page of Markdown, so that the documentation cannot drift from the code."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from monarq.config import FIELDS, Field
from monarq.settings_loading import value_text

_KINDS = {"int": "number", "float": "number", "bool": "on/off", "str": "text", "list": "list"}


def settings_tables() -> str:
    """A heading and a table for each group of settings."""
    return "\n".join(_lines())


def _lines() -> Iterator[str]:
    for group, fields in groupby(FIELDS.values(), key=lambda field: field.group):
        yield f"### {group}\n"
        yield "| setting | default | what | allowed |"
        yield "|---|---|---|---|"
        for field in fields:
            default = value_text(field.default)
            shown = f"`{default}`" if default else ""
            yield f"| `{field.name}` | {shown} | {_cell(field.description)} | {_allowed(field)} |"
        yield ""


def _allowed(field: Field) -> str:
    if field.choices:
        return ", ".join(f"`{choice}`" for choice in field.choices)
    kind = _KINDS[field.kind]
    return f"{kind} {field.bounds}" if field.bounds else kind


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
