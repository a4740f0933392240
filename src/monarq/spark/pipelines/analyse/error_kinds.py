"""Makes errors that differ only in ids, numbers and quoted values the same error.

The rules are data, so that Spark's regular expressions and Python's carry out the same ones:
only what both read alike may be used in a pattern (no `\\d` or `\\w`, which are Unicode in one
of them), and a replacement has no groups.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import Column

#: What a text is cut to before anything is replaced, and after.
_READ_CHARACTERS = 2_000
_SHOWN_CHARACTERS = 160

NO_ERROR = "no error text"

#: In this order. Quoted values go first, so that what is in them is not looked at.
REPLACEMENTS: tuple[tuple[str, str], ...] = (
    (r"'[^'\n]{1,200}'", "'…'"),
    (r'"[^"\n]{1,200}"', '"…"'),
    (r"[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}", "<id>"),
    (r"0x[0-9a-fA-F]+", "<id>"),
    (r"(?<![0-9A-Za-z_])(?=[0-9a-fA-F]*[0-9])[0-9a-fA-F]{12,}(?![0-9A-Za-z_])", "<id>"),
    # An exit code or a status says what went wrong.
    (r"(?<![A-Za-z_0-9])(?<!code )(?<!status )(?<!signal )[0-9]+([.,:][0-9]+)*", "<n>"),
    (r"[0-9]{4,}", "<n>"),
    (r"[ \t]+", " "),
)

#: The name of a Python, Java or JavaScript error in front of a colon, or alone.
KIND = (
    r"^([A-Za-z_][A-Za-z0-9_]*\.)*([A-Z][A-Za-z0-9_]*"
    r"(Error|Exception|Warning|Timeout|Interrupt|Exit|Failure|Refused|Expired))(?=:|$)"
)
_KIND_GROUP = 2

_COMPILED = [(re.compile(pattern), replacement) for pattern, replacement in REPLACEMENTS]
_TRACEBACK = "Traceback (most recent call last)"


def normalise(error: str | None) -> str:
    """The line that says what went wrong, without what differs from case to case."""
    text = (error or "")[:_READ_CHARACTERS].strip(" \t\r\n")
    lines = text.split("\n")
    line = (lines[-1] if text.startswith(_TRACEBACK) else lines[0]).strip(" \t\r")
    for pattern, replacement in _COMPILED:
        line = pattern.sub(replacement, line)
    return line[:_SHOWN_CHARACTERS] or NO_ERROR


def kind_of(normalised: str) -> str:
    """The error's type, if the text begins with one; else the text."""
    found = re.search(KIND, normalised)
    return found.group(_KIND_GROUP) if found else normalised


def normalised_column(error: Column) -> Column:
    """`normalise`, carried out by Spark."""
    from pyspark.sql import functions as f

    text = f.trim(f.substring(f.coalesce(error, f.lit("")), 1, _READ_CHARACTERS), f.lit(" \t\r\n"))
    lines = f.split(text, "\n")
    line = f.trim(
        f.when(text.startswith(_TRACEBACK), f.element_at(lines, -1)).otherwise(
            f.element_at(lines, 1)
        ),
        f.lit(" \t\r"),
    )
    for pattern, replacement in REPLACEMENTS:
        line = f.regexp_replace(line, pattern, replacement)
    cut = f.substring(line, 1, _SHOWN_CHARACTERS)
    return f.when(cut == "", f.lit(NO_ERROR)).otherwise(cut)
