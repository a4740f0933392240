"""How options of the data source are stated, checked and shown.

An option is one row: its name, what is allowed, what it means and how its text is read. The
reference page is made from the rows. Knows no option itself.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from msgspec import Struct

from monarq.errors import InvalidRequestError


class Option(Struct, frozen=True):
    name: str
    read: Callable[[str], Any]
    """Gives the value, or raises a ValueError or an InvalidRequestError."""
    allowed: str
    meaning: str
    default: Any = None
    shown_default: str = ""
    secret: bool = False


def option_values(given: Mapping[str, str], table: Iterable[Option]) -> dict[str, Any]:
    """The value of every option of the table, by its name. Names are taken in any case.

    Options that are not in the table, and values that are not allowed, are refused.
    """
    known = {option.name.lower(): option for option in table}
    values = {option.name: option.default for option in known.values()}
    for name, text in given.items():
        option = known.get(name.lower())
        if option is None:
            raise InvalidRequestError(_unknown(name, [row.name for row in known.values()]))
        values[option.name] = _value(option, text)
    return values


def reference(table: Iterable[Option]) -> str:
    """The options as a table in Markdown."""
    lines = ["| option | allowed | default | what |", "|---|---|---|---|"]
    lines += [
        f"| `{option.name}` | {_cell(option.allowed)} | {_cell(option.shown_default)} "
        f"| {_cell(option.meaning)} |"
        for option in table
    ]
    return "\n".join(lines) + "\n"


def _value(option: Option, text: str) -> Any:
    try:
        return option.read(text)
    except InvalidRequestError as error:
        raise InvalidRequestError(f"option {option.name!r}: {error}") from None
    except ValueError:
        shown = "it" if option.secret else repr(text[:80])
        raise InvalidRequestError(
            f"option {option.name!r} must be {option.allowed.replace('`', '')}: {shown} is not"
        ) from None


def _unknown(name: str, known: list[str]) -> str:
    if name.lower() == "path":
        return "the data source takes no path: name the broker or store by the option 'url'"
    close = difflib.get_close_matches(name.lower(), [one.lower() for one in known], 1)
    hint = "".join(f"; did you mean {one!r}?" for one in known if one.lower() in close)
    return f"there is no option {name!r}{hint or '; there are ' + ', '.join(known)}"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


# --- how texts are read ------------------------------------------------------------------


def text(value: str) -> str:
    if not value:
        raise ValueError
    return value


def whole_number(least: int, most: int = 2**53) -> Callable[[str], int]:
    def read(value: str) -> int:
        number = int(value)
        if not least <= number <= most:
            raise ValueError
        return number

    return read


def yes_or_no(value: str) -> bool:
    match value.lower():
        case "true":
            return True
        case "false":
            return False
    raise ValueError


def one_of(words: Iterable[str]) -> Callable[[str], str]:
    allowed = tuple(words)

    def read(value: str) -> str:
        if value not in allowed:
            raise ValueError
        return value

    return read
