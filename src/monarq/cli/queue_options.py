"""Flags for every option of a queue, made from the options themselves, so that none is missing.

A flag that was not given is None: what is not said keeps its value.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Annotated, Any

import typer

from monarq.cli.formats import parse_duration
from monarq.errors import InvalidRequestError
from monarq.model.queue_options import OPTION_BY_NAME, QUEUE_OPTIONS, QueueOption


def with_option_flags(command: Callable[..., None]) -> Callable[..., None]:
    """`command(caller, …, options)` as a function that has a flag for each option, and
    `--option NAME=VALUE`, instead of `options`."""

    def run(*arguments: Any, option: list[str] | None, **given: Any) -> None:
        flags = {each.name: given.pop(each.name) for each in QUEUE_OPTIONS}
        command(*arguments, **given, options=_gathered(flags, option or []))

    signature = inspect.signature(command, eval_str=True)
    own = [parameter for name, parameter in signature.parameters.items() if name != "options"]
    flags = [_parameter(each.name, _flag(each)) for each in QUEUE_OPTIONS]
    pairs = Annotated[
        list[str] | None,
        typer.Option("--option", "-o", metavar="NAME=VALUE", help="any option by its API name"),
    ]
    run.__name__ = command.__name__
    run.__doc__ = command.__doc__
    run.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [*own, _parameter("option", pairs), *flags]
    )
    return run


def _parameter(name: str, annotation: Any) -> inspect.Parameter:
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation
    )


def _flag(option: QueueOption) -> Any:
    flag = _flag_name(option)
    is_switch = option.type is bool
    meaning = option.description
    if option.unit == "ms":
        meaning += ", in milliseconds"
    default = _shown_default(option.default)
    kinds = "" if option.kind is None else f" of {option.kind} queues"
    return Annotated[
        (bool if is_switch else str) | None,
        typer.Option(
            f"{flag}/--no-{flag[2:]}" if is_switch else flag,
            help=f"{meaning} (default: {default})" if default else meaning,
            rich_help_panel=f"Options{kinds}",
            show_default=False,
            metavar=None if is_switch else _metavar(option),
        ),
    ]


def _flag_name(option: QueueOption) -> str:
    return "--" + option.name.replace("_", "-")


def _metavar(option: QueueOption) -> str:
    if option.unit == "s":
        return "DURATION"
    return "NAME" if option.type is str else "NUMBER"


def _shown_default(value: Any) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return str(value)


# --- reading -------------------------------------------------------------------------------


def _gathered(flags: dict[str, Any], pairs: list[str]) -> dict[str, Any]:
    """Return the given options, by the names of the API."""
    options = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not name or not equals:
            raise InvalidRequestError(f"--option must be NAME=VALUE, not {pair!r}")
        option = _known(name)
        options[option.api_name] = _value(option, text, f"--option {name}")
    for name, value in flags.items():
        if value is not None:
            option = OPTION_BY_NAME[name]
            options[option.api_name] = _value(option, value, _flag_name(option))
    return options


def _known(name: str) -> QueueOption:
    option = OPTION_BY_NAME.get(name) or OPTION_BY_NAME.get(name.replace("-", "_"))
    if option is not None:
        return option
    import difflib

    names = [each.api_name for each in QUEUE_OPTIONS]
    near = difflib.get_close_matches(name, names, n=1)
    hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(names)}"
    raise InvalidRequestError(f"there is no option {name!r}; {hint}")


def _value(option: QueueOption, value: Any, source: str) -> Any:
    if not isinstance(value, str) or option.type is str:
        return value
    if option.type is bool:
        known = {"true": True, "on": True, "yes": True, "false": False, "off": False, "no": False}
        if value.lower() not in known:
            raise InvalidRequestError(f"{source} must be true or false, not {value!r}")
        return known[value.lower()]
    if option.unit == "s":
        return parse_duration(value, source)
    try:
        return option.type(value)
    except ValueError:
        what = "a whole number" if option.type is int else "a number"
        raise InvalidRequestError(f"{source} must be {what}, not {value!r}") from None
