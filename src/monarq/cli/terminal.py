"""What other people wrote, as it may be printed at a terminal.

A terminal obeys control characters: they can clear the screen, set the clipboard or the title, and
fake what a command says. So at a terminal they are shown as symbols. In a pipe or a file text stays
as it is.
"""

from __future__ import annotations

import re
import sys
from typing import TextIO

#: Control characters (C0, DEL, C1) and those that change the direction of text.
_CONTROLS = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069]"
)


def shown(text: str, stream: TextIO | None = None, *, raw: bool = False) -> str:
    """Return the text as it may be printed to the stream (default: stdout). At a terminal, control
    characters other than newline and tab become symbols, unless `raw`."""
    stream = sys.stdout if stream is None else stream
    if raw or text.isprintable() or not stream.isatty():
        return text
    return _CONTROLS.sub(_symbol, text.replace("\r\n", "\n"))


def shown_json(text: str) -> str:
    """Return JSON with its control characters escaped if stdout is a terminal."""
    if not sys.stdout.isatty():
        return text
    return _CONTROLS.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def _symbol(found: re.Match[str]) -> str:
    number = ord(found[0])
    if number < 0x20:
        return chr(0x2400 + number)
    return "␡" if number == 0x7F else "�"
