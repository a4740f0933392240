"""Gathers the settings: flags win over MONARQ_… variables, these over the file, this over defaults.

Says of each value where it came from, and of each mistake which setting it is, where it stands
and what is allowed; all mistakes at once. Reads the file and opens nothing else.
"""

from __future__ import annotations

import difflib
import math
import os
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from monarq.config import FIELDS, Field, Settings
from monarq.errors import SettingsError
from monarq.places import user_settings_file, without_password
from monarq.settings_checks import contradictions

PREFIX = "MONARQ_"
FILE_VARIABLE = "MONARQ_CONFIG"
#: Variables with our prefix that are for others: clients, the tests, the scripts around them.
OTHER_VARIABLES = ("MONARQ_TEST_", "MONARQ_VENV", "MONARQ_URL", "MONARQ_TOKEN")


class Source(Struct, frozen=True):
    """Where a value came from."""

    kind: str
    """`flag`, `variable`, `file` or `default`."""
    name: str
    """The flag, the variable, or the file's path; empty for a default."""

    def __str__(self) -> str:
        return self.name or self.kind


DEFAULT = Source("default", "")


class Loaded(Struct, frozen=True):
    settings: Settings
    sources: dict[str, Source]
    file: Path | None
    """The file that was read."""
    warnings: list[str]


def load(
    flags: Mapping[str, Any] | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    file: str | None = None,
    check: bool = True,
) -> Loaded:
    """The settings in force. `flags` that are None were not given; `file` is `--config`'s. Without
    `check` settings may contradict each other, or name files that are not there yet.

    Raises `SettingsError` with every mistake, one a line.
    """
    environ = os.environ if environ is None else environ
    path, content = _read_file(file, environ)
    from_file, mistakes = _of_file(path, content)
    from_variables, warnings = _of_variables(environ)
    from_flags: _Given = {
        name: (value, Source("flag", FIELDS[name].flag))
        for name, value in (flags or {}).items()
        if value is not None
    }
    given = from_file | from_variables | from_flags

    values: dict[str, Any] = {}
    for name, (value, source) in given.items():
        try:
            values[name] = convert(FIELDS[name], value, is_text=source.kind != "file")
        except ValueError as error:
            mistakes.append(f"{name} (from {source}): {error}")
    if not mistakes:
        settings = Settings(**values)
        sources = {name: given[name][1] if name in given else DEFAULT for name in FIELDS}
        for name, problem in contradictions(settings) if check else ():
            mistakes.append(f"{name} (from {sources[name]}): {problem}")
    if mistakes:
        raise SettingsError("\n".join(mistakes))
    return Loaded(settings, sources, path, warnings)


_Given = dict[str, tuple[Any, Source]]
"""Values as they were written, by the setting's name."""


def _of_file(path: Path | None, content: Mapping[str, Any]) -> tuple[_Given, list[str]]:
    """What the file sets, and the mistakes in it."""
    given: _Given = {}
    mistakes: list[str] = []
    for name, value in content.items():
        if name in FIELDS:
            given[name] = (value, Source("file", str(path)))
        else:
            what = "table" if isinstance(value, dict) else "setting"
            mistakes.append(f"{name} (in {path}): there is no such {what}{_nearest(name)}")
    return given, mistakes


def _of_variables(environ: Mapping[str, str]) -> tuple[_Given, list[str]]:
    """What the environment sets, and a warning of each variable that looks like it and is not."""
    given: _Given = {}
    warnings: list[str] = []
    for variable, text in environ.items():
        if not variable.startswith(PREFIX) or variable == FILE_VARIABLE:
            continue
        name = variable.removeprefix(PREFIX).lower()
        if name in FIELDS:
            if text:
                given[name] = (text, Source("variable", variable))
        elif not variable.startswith(OTHER_VARIABLES):
            warnings.append(
                f"{variable} is ignored: there is no such setting{_nearest(name, PREFIX)}"
            )
    return given, warnings


def convert(field: Field, value: Any, *, is_text: bool) -> Any:
    """The value in the setting's type; `ValueError` says what is allowed. Variables and flags
    are text to be read; a value of the file must have the right type already."""
    if is_text and field.is_list:
        whole = value if isinstance(value, str) else ",".join(value)
        value = [part.strip() for part in whole.split(",") if part.strip()]
    try:
        converted = msgspec.convert(value, field.type, strict=not is_text)
    except msgspec.ValidationError as error:
        shown = "***" if field.secret else repr(value)
        raise ValueError(f"{_plain(str(error), field)}, not {shown}") from None
    if isinstance(converted, float) and not math.isfinite(converted):
        raise ValueError(f"must be a finite number, not {value!r}")
    return converted


def shown(field: Field, value: Any) -> Any:
    """The value as it may be printed: secrets are replaced."""
    if field.name == "store":
        return without_password(value)
    if not field.secret or not value:
        return value
    return ["***"] * len(value) if isinstance(value, list) else "***"


def value_text(value: Any) -> str:
    """A value as people write it."""
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, float):
        return f"{value:g}"
    return ",".join(value) if isinstance(value, list) else str(value)


def _read_file(named: str | None, environ: Mapping[str, str]) -> tuple[Path | None, dict[str, Any]]:
    said = named or environ.get(FILE_VARIABLE)
    path = Path(said).expanduser() if said else user_settings_file()
    where = "--config" if named else FILE_VARIABLE
    try:
        return path, tomllib.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        if said is None:
            return None, {}
        raise SettingsError(f"config (from {where}): there is no file {path}") from None
    except OSError as error:
        raise SettingsError(f"config: cannot read {path}: {error.strerror or error}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"config: {path} is not valid TOML: {error}") from None


def _nearest(name: str, prefix: str = "") -> str:
    names: Iterable[str] = FIELDS
    found = difflib.get_close_matches(name.lower().replace("-", "_"), names, n=1, cutoff=0.6)
    if not found:
        return "; `monarq config show` lists them all"
    return f"; did you mean {prefix + found[0].upper() if prefix else found[0]}?"


def _plain(error: str, field: Field) -> str:
    """What msgspec says, with patterns that list words as those words."""
    if field.choices:
        return f"must be one of {', '.join(field.choices)}"
    text = error.partition(" - at ")[0].replace("`", "")
    wanted, got, _ = text.partition(", got ")
    wanted = wanted if got else text
    bounds = f" {field.bounds}" if field.bounds else ""
    if wanted.startswith("Expected "):
        kind = wanted.removeprefix("Expected ").split(" ")[0]
        return f"must be {_KINDS.get(kind, kind)}{bounds}"
    return f"must be {_KINDS.get(field.kind, field.kind)}{bounds}"


_KINDS = {
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "str": "text",
    "array": "a list",
    "list": "a list",
}
