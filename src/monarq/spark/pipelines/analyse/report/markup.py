"""Pieces of HTML: text that came from outside, findings, tables. All escaping of the page that is
not a chart's is done here."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

from monarq.spark.pipelines.analyse.wording import plain

_NAMED = re.compile(r"`([^`]*)`")
_LONGEST = 400


def text(value: str, most: int = _LONGEST) -> str:
    return escape(plain(value, most))


def code(value: str, most: int = 80) -> str:
    """A name; its whole length is told where it had to be cut."""
    title = f' title="{text(value, 1_000)}"' if len(value) > most else ""
    return f"<code{title}>{text(value, most)}</code>"


def sentence(value: str) -> str:
    """A finding: what is between backquotes is a name."""
    parts = _NAMED.split(value)
    return "".join(
        f"<code>{text(part)}</code>" if place % 2 else text(part)
        for place, part in enumerate(parts)
    )


@dataclass(frozen=True)
class Cell:
    """Of a table."""

    html: str
    is_number: bool = False
    part: float | None = None
    """Drawn as a bar behind the number, from 0 to 1."""

    def render(self) -> str:
        classes = ["n"] if self.is_number else []
        if self.part is None:
            inner = self.html
        else:
            classes.append("bar")
            width = 100 * min(max(self.part, 0.0), 1.0)
            inner = f'<span style="width:{width:.1f}%"></span><b>{self.html}</b>'
        return f'<td class="{" ".join(classes)}">{inner}</td>' if classes else f"<td>{inner}</td>"


def words(html: str) -> Cell:
    return Cell(html)


def number(shown: str | None, part: float | None = None) -> Cell:
    """Nothing measured is not nought."""
    return Cell("–" if shown is None else text(shown), is_number=True, part=part)


def table(
    caption: str, columns: Sequence[str], rows: Iterable[Sequence[Cell]], *, of: str = ""
) -> str:
    """A column that begins with `#` holds numbers. `of` tells it from others with its caption."""
    label = f"{caption}: {of}" if of else caption
    heads = "".join(
        f'<th scope="col" class="n">{escape(name[1:])}</th>'
        if name.startswith("#")
        else f'<th scope="col">{escape(name)}</th>'
        for name in columns
    )
    body = "".join(f"<tr>{''.join(cell.render() for cell in row)}</tr>" for row in rows)
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{text(label)}"><table>'
        f"<caption>{escape(caption)}</caption>"
        f"<thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table></div>"
    )
