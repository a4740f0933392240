"""Writes `docs/openapi.json`, so that a review sees what changes in the API. Part of
`./dev generate`."""

import json
from pathlib import Path
from typing import Any

from monarq.server.openapi import openapi
from monarq.server.routes import ROUTES

TARGET = Path(__file__).parent.parent / "docs" / "openapi.json"


def document() -> str:
    """Return the description, with a line for each operation and each schema."""
    # The version of the package says nothing about the API.
    return _spread(openapi(ROUTES, version="as in this repository"), 3) + "\n"


def _spread(value: Any, depth: int) -> str:
    if depth == 0 or not isinstance(value, dict) or not value:
        return json.dumps(value, ensure_ascii=False)
    rows = (f"{json.dumps(name)}: {_spread(inner, depth - 1)}" for name, inner in value.items())
    return "{\n" + ",\n".join(rows) + "\n}"


if __name__ == "__main__":
    TARGET.write_text(document())
