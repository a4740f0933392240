"""Defaults of jobs that are enqueued later: `monarq config get|set|list|unset`."""

from __future__ import annotations

from typing import Annotated

import typer

from monarq.cli.calling import Caller, calling

NameArgument = Annotated[
    str, typer.Argument(help="max-retries, backoff-base, timeout, priority or queue")
]


def add_to(app: typer.Typer) -> None:
    panel = "Defaults of jobs"
    app.command("list", rich_help_panel=panel)(calling(list_settings))
    app.command("get", rich_help_panel=panel)(calling(get))
    # A negative number is a value, and no option.
    app.command("set", rich_help_panel=panel, context_settings={"ignore_unknown_options": True})(
        calling(set_value)
    )
    app.command("unset", rich_help_panel=panel)(calling(unset))


def list_settings(caller: Caller) -> None:
    """List the defaults for jobs that are enqueued from now on."""
    import msgspec

    from monarq.jobs.enqueueing import read_settings, settings_that_are_set

    with caller.client() as client:
        in_force = msgspec.to_builtins(read_settings(client))
        given = settings_that_are_set(client)
    rows = [
        {"name": name, "value": value, "from": "set" if name in given else "default"}
        for name, value in in_force.items()
    ]
    caller.rows(rows, ("name", "value", "from"), empty="")


def get(caller: Caller, name: NameArgument) -> None:
    """Print one of the defaults."""
    import msgspec

    from monarq.errors import InvalidRequestError
    from monarq.jobs.enqueueing import SETTING_NAMES, read_settings

    if name not in SETTING_NAMES:
        raise InvalidRequestError(
            f"there is no setting {name!r} of jobs; there are {', '.join(SETTING_NAMES)}"
        )
    with caller.client() as client:
        value = msgspec.to_builtins(read_settings(client))[name]
    caller.answer({"name": name, "value": value}, "none" if value is None else str(value))


def set_value(caller: Caller, name: NameArgument, value: str) -> None:
    """Set one of the defaults; jobs that are enqueued already keep theirs."""
    from monarq.jobs.enqueueing import set_setting

    with caller.client() as client:
        was_set = set_setting(client, name, value)
    caller.answer({"name": name, "value": was_set}, f"{name} is {was_set} from now on")


def unset(caller: Caller, name: NameArgument) -> None:
    """Take one back to what it was at first."""
    from monarq.jobs.enqueueing import unset_setting

    with caller.client() as client:
        was_set = unset_setting(client, name)
    caller.answer(
        {"name": name, "unset": was_set},
        f"{name} is at its default" if was_set else f"{name} was at its default already",
    )
