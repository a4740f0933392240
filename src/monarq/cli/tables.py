"""Tables on stdout, as wide as the terminal allows.

Uses no more of rich than it needs to measure text: a shell user waits for every import.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence
from typing import Any

_GAP = "  "
_NARROWEST = 4
#: A column that is cut to less tells nothing.
_READABLE = 6
#: Numbers that name something, and are not counted with: no separators.
_NAMES = frozenset({"pid", "number", "seq", "attempt", "from seq", "to seq", "position"})
_STATE_COLUMNS = frozenset({"state", "outcome", "status", "level"})
_COLOURS = {
    **dict.fromkeys(("completed", "done", "running", "ok", "queued"), "32"),
    **dict.fromkeys(("processing", "leased", "stopping"), "36"),
    **dict.fromkeys(("failed", "retry", "warning", "paused", "expired"), "33"),
    **dict.fromkeys(("dead", "lost", "problem"), "31"),
    **dict.fromkeys(("cancelled", "stopped"), "2"),
}
_BOLD = "1"


def print_table(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """What does not fit the terminal is cut in the widest columns. Where nothing readable would be
    left of them, each row is a block with a line for each column."""
    cells = [
        [_cell(column, value) for column, value in zip(columns, row, strict=True)] for row in rows
    ]
    widths = [
        max(map(_width, (column, *(row[number] for row in cells))))
        for number, column in enumerate(columns)
    ]
    most = line_width()
    if most is not None and sum(min(width, _READABLE) for width in widths) > _room(widths, most):
        _print_blocks(columns, cells, most)
        return
    widths = _fitted(widths, most)
    right = [
        all(isinstance(row[number], int | float | None) for row in rows)
        for number in range(len(columns))
    ]
    print(_line(columns, widths, right, [_BOLD] * len(columns) if may_colour() else []))
    for row in cells:
        print(_line(row, widths, right, _styles(columns, row)))


def _print_blocks(columns: Sequence[str], cells: Sequence[Sequence[str]], most: int) -> None:
    names = max(map(_width, columns))
    widths = [names, max(_NARROWEST, most - names - len(_GAP))]
    for number, row in enumerate(cells):
        if number:
            print()
        styles = _styles(columns, row) or [""] * len(columns)
        for column, text, style in zip(columns, row, styles, strict=True):
            print(_line([column, text], widths, [False, False], ["", style]))


def _styles(columns: Sequence[str], row: Sequence[str]) -> list[str]:
    if not may_colour():
        return []
    return [
        _COLOURS.get(text, "") if column in _STATE_COLUMNS else ""
        for column, text in zip(columns, row, strict=True)
    ]


def may_colour() -> bool:
    """Only for people at a terminal that can, and never against their will."""
    return (
        sys.stdout.isatty()
        and not os.environ.get("NO_COLOR")
        and os.environ.get("TERM", "dumb") != "dumb"
    )


def state_text(state: str) -> str:
    """A state, coloured where that may be."""
    colour = _COLOURS.get(state, "")
    return _styled(state, colour) if colour and may_colour() else state


def line_width() -> int | None:
    """None if nothing limits it: a file or a program reads it."""
    if not sys.stdout.isatty() and "COLUMNS" not in os.environ:
        return None
    return max(20, shutil.get_terminal_size().columns)


def _room(widths: Sequence[int], most: int) -> int:
    """What the gaps between so many columns leave for them."""
    return most - len(_GAP) * (len(widths) - 1)


def _fitted(widths: list[int], most: int | None) -> list[int]:
    if most is None:
        return widths
    left = _room(widths, most)
    fitted = list(widths)
    while sum(fitted) > left:
        widest = max(range(len(fitted)), key=lambda number: fitted[number])
        if fitted[widest] <= _NARROWEST:
            break
        fitted[widest] -= 1
    return fitted


def _line(
    cells: Sequence[str], widths: Sequence[int], right: Sequence[bool], styles: Sequence[str]
) -> str:
    parts = []
    last = len(cells) - 1
    for number, (text, width) in enumerate(zip(cells, widths, strict=True)):
        text = _cut(text, width)
        space = " " * (width - _width(text))
        shown = _styled(text, styles[number]) if styles and styles[number] else text
        if right[number]:
            parts.append(space + shown)
        else:
            parts.append(shown if number == last else shown + space)
    return _GAP.join(parts)


def _styled(text: str, style: str) -> str:
    return f"\x1b[{style}m{text}\x1b[0m"


def _cell(column: str, value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:,.2f}"
    if isinstance(value, int):
        return str(value) if column in _NAMES else f"{value:,}"
    return printable(str(value))


def printable(text: str) -> str:
    """On one line, and without characters that would do something to a terminal."""
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() else "⏎" if each == "\n" else " " if each == "\t" else "�"
        for each in text
    )


def _width(text: str) -> int:
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def _cut(text: str, width: int) -> str:
    if _width(text) <= width:
        return text
    if text.isascii():
        return text[: width - 1] + "…"
    from rich.cells import set_cell_size

    return set_cell_size(text, width - 1).rstrip(" ") + "…"
