"""Flags for every setting, made from the settings themselves, so that none is missing.

A flag that was not given is None: its default is the settings' own, and never hides what a
variable or the file says.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Annotated, Any

import typer

from monarq.config import FIELDS, Field
from monarq.settings_loading import value_text

_TYPES: dict[str, Any] = {"int": str, "float": str, "str": str, "bool": bool, "list": list[str]}
_METAVARS = {"int": "NUMBER", "float": "NUMBER", "str": "TEXT", "list": "TEXT,…"}


def with_settings_flags(command: Callable[[dict[str, Any], str | None], None]) -> Any:
    """`command(flags, config)` as a function whose parameters are `--config` and all flags."""

    def run(config: str | None = None, **flags: Any) -> None:
        command(flags, config)

    run.__name__ = command.__name__
    run.__doc__ = command.__doc__
    config = Annotated[
        str | None,
        typer.Option(
            "--config",
            metavar="FILE",
            help="TOML file with settings (default: config.toml in the user's config directory)",
        ),
    ]
    parameters = [_parameter("config", config)]
    parameters += [_parameter(name, _annotation(field)) for name, field in FIELDS.items()]
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run


def given(flags: dict[str, Any]) -> dict[str, Any]:
    """Those that were given; typer may answer a list flag that was not with an empty list."""
    return {name: value for name, value in flags.items() if value not in (None, [], ())}


def _parameter(name: str, annotation: Any) -> inspect.Parameter:
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation
    )


def _help(field: Field) -> str:
    default = value_text(field.default)
    return f"{field.description} (default: {default})" if default else field.description


def _annotation(field: Field) -> Any:
    names = [f"{field.flag}/--no-{field.flag[2:]}"] if field.kind == "bool" else [field.flag]
    # Numbers are read by the loading, so that a mistake in a flag is told like any other.
    return Annotated[
        _TYPES[field.kind] | None,
        typer.Option(
            *names,
            help=_help(field),
            rich_help_panel=field.group,
            show_default=False,
            metavar=_METAVARS.get(field.kind) if not field.choices else "|".join(field.choices),
        ),
    ]
