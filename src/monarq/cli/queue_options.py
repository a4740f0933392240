"""Flags for every option of a queue, made from the options themselves, so that none is missing.

A flag that was not given is None: what is not said keeps its value.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import cache
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import msgspec
import typer

from monarq.cli.formats import parse_duration
from monarq.errors import InvalidRequestError
from monarq.model import KIND_OF_OPTION, QueueOptions

#: What each option means.
_MEANINGS = {
    "lease_time": "how long a consumer may take",
    "retention_enabled": "whether old messages and finished items are removed",
    "retention_seconds": "remove messages that old, consumed or not; 0: never",
    "completed_retention_seconds": "remove what is done that long after; 0: never",
    "max_size": "refuse pushes when so much is pending; 0: no limit",
    "encryption_enabled": "encrypt payloads in the store",
    "priority": "which queue a pop by namespace looks at first",
    "dead_queue": "move the dead to this queue",
    "retry_limit": "deliveries after the first, before a message is dead",
    "retry_delay": "milliseconds before a failed message comes again",
    "delayed_processing": "deliver no message younger than this",
    "window_buffer": "deliver a partition when it has been quiet so long",
    "max_wait_time_seconds": "what waited longer is dead",
    "dead_letter_queue": "whether the dead are kept as dead letters",
    "dlq_after_max_retries": "whether used-up retries make a message dead",
    "retain_until_archived": "remove no message that is not archived yet",
    "max_attempts": "attempts in all, before an item is dead",
    "backoff_base": "a failed item waits base ^ attempts seconds",
    "backoff_cap": "but at most so long",
    "backoff_jitter": "and at random up to this part of it longer",
    "expire_timeout": "what was not begun that long after its push is dead",
    "default_priority": "the priority of items that name none",
    "runs_commands": "its items are shell commands, for workers to run",
}
_DURATIONS = frozenset(
    {
        "lease_time",
        "retention_seconds",
        "completed_retention_seconds",
        "delayed_processing",
        "window_buffer",
        "max_wait_time_seconds",
        "backoff_cap",
        "expire_timeout",
    }
)


class OptionField(msgspec.Struct, frozen=True):
    name: str
    kind: type
    """`int`, `float`, `bool` or `str`."""
    default: Any
    encoded: str
    """Its name in the API."""


@cache
def option_fields() -> dict[str, OptionField]:
    hints = get_type_hints(QueueOptions, include_extras=True)
    return {
        info.name: OptionField(
            info.name, _plain_type(hints[info.name]), info.default, info.encode_name
        )
        for info in msgspec.structs.fields(QueueOptions)
    }


def _plain_type(hint: Any) -> type:
    while get_origin(hint) is Annotated:
        hint = get_args(hint)[0]
    assert isinstance(hint, type)
    return hint


def with_option_flags(command: Callable[..., None]) -> Callable[..., None]:
    """`command(caller, …, options)` as a function that has a flag for each option, and
    `--option NAME=VALUE`, instead of `options`."""

    def run(*arguments: Any, option: list[str] | None, **given: Any) -> None:
        flags = {name: given.pop(name) for name in option_fields()}
        command(*arguments, **given, options=_gathered(flags, option or []))

    signature = inspect.signature(command, eval_str=True)
    own = [parameter for name, parameter in signature.parameters.items() if name != "options"]
    flags = [_parameter(name, _flag(field)) for name, field in option_fields().items()]
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


def _flag(field: OptionField) -> Any:
    flag = "--" + field.name.replace("_", "-")
    kind = KIND_OF_OPTION.get(field.name)
    meaning = _MEANINGS[field.name]
    default = _shown_default(field.default)
    return Annotated[
        (bool if field.kind is bool else str) | None,
        typer.Option(
            f"{flag}/--no-{flag[2:]}" if field.kind is bool else flag,
            help=f"{meaning} (default: {default})" if default else meaning,
            rich_help_panel="Options" if kind is None else f"Options of {kind} queues",
            show_default=False,
            metavar=None if field.kind is bool else _metavar(field),
        ),
    ]


def _metavar(field: OptionField) -> str:
    if field.name in _DURATIONS:
        return "DURATION"
    return "NAME" if field.kind is str else "NUMBER"


def _shown_default(value: Any) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return str(value)


# --- reading -------------------------------------------------------------------------------


def _gathered(flags: dict[str, Any], pairs: list[str]) -> dict[str, Any]:
    """What was given, by the names of the API."""
    options = {}
    fields = option_fields()
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not name or not equals:
            raise InvalidRequestError(f"--option must be NAME=VALUE, not {pair!r}")
        options[_known(name).encoded] = _value(_known(name), text, f"--option {name}")
    for name, value in flags.items():
        if value is not None:
            flag = "--" + name.replace("_", "-")
            options[fields[name].encoded] = _value(fields[name], value, flag)
    return options


def _known(name: str) -> OptionField:
    for field in option_fields().values():
        if name in (field.encoded, field.name, field.name.replace("_", "-")):
            return field
    import difflib

    names = [field.encoded for field in option_fields().values()]
    near = difflib.get_close_matches(name, names, n=1)
    hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(names)}"
    raise InvalidRequestError(f"there is no option {name!r}; {hint}")


def _value(field: OptionField, value: Any, source: str) -> Any:
    if not isinstance(value, str) or field.kind is str:
        return value
    if field.kind is bool:
        known = {"true": True, "on": True, "yes": True, "false": False, "off": False, "no": False}
        if value.lower() not in known:
            raise InvalidRequestError(f"{source} must be true or false, not {value!r}")
        return known[value.lower()]
    if field.name in _DURATIONS:
        return parse_duration(value, source)
    try:
        return field.kind(value)
    except ValueError:
        what = "a whole number" if field.kind is int else "a number"
        raise InvalidRequestError(f"{source} must be {what}, not {value!r}") from None
