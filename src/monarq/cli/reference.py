"""The command line as a page of Markdown, so that the documentation cannot drift from the code."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from enum import Enum
from typing import Annotated, Any, get_args, get_origin

import typer
from typer.models import ArgumentInfo, CommandInfo, ParameterInfo

from monarq.cli.calling import COMMON_OPTIONS

_SETTINGS = "serve"


def add_to(app: typer.Typer) -> None:
    app.command("reference", hidden=True)(print_reference)


def print_reference() -> None:
    """Print this reference of all commands, as Markdown."""
    print(reference())


def reference() -> str:
    from monarq.cli.main import make_app

    return "\n".join(_lines(make_app())).rstrip()


def commands(app: typer.Typer, above: tuple[str, ...] = ()) -> Iterator[tuple[str, CommandInfo]]:
    """Every command that people are shown, by the words that call it."""
    for command in app.registered_commands:
        assert command.callback is not None
        name = command.name or command.callback.__name__.replace("_", "-")
        if not command.hidden:
            yield " ".join((*above, name)), command
    for group in app.registered_groups:
        assert group.typer_instance is not None
        yield from commands(group.typer_instance, (*above, str(group.name)))


def _lines(app: typer.Typer) -> Iterator[str]:
    yield "### Options that most commands have\n"
    yield "| option | what |"
    yield "|---|---|"
    for annotation in COMMON_OPTIONS.values():
        info, _ = _read(annotation)
        yield f"| {_names(info, '')} | {_cell(info.help or '')} |"
    yield ""
    for name, command in sorted(commands(app), key=lambda each: each[0]):
        yield from _command(name, command)


def _command(name: str, command: CommandInfo) -> Iterator[str]:
    assert command.callback is not None
    parameters = [
        (parameter, *_read(parameter.annotation, parameter.default))
        for parameter in inspect.signature(command.callback, eval_str=True).parameters.values()
    ]
    own = [each for each in parameters if each[0].name not in COMMON_OPTIONS]
    arguments = [each for each in own if isinstance(each[1], ArgumentInfo)]
    words = "".join(f" {_argument(*each)}" for each in arguments)
    yield f"### `monarq {name}{words}`\n"
    yield inspect.cleandoc(command.callback.__doc__ or "") + "\n"
    if name == _SETTINGS:
        yield "Its options are the [settings](configuration.md), and `--config FILE`.\n"
        return
    if not own:
        return
    yield "| | what |"
    yield "|---|---|"
    for parameter, info, kind in own:
        named = (
            f"`{_argument(parameter, info, kind)}`"
            if isinstance(info, ArgumentInfo)
            else _names(info, parameter.name)
        )
        yield f"| {named} | {_cell(_meaning(parameter, info, kind))} |"
    yield ""


def _read(annotation: Any, default: Any = None) -> tuple[ParameterInfo, Any]:
    """What typer was told of a parameter, and its type."""
    if isinstance(default, ParameterInfo):
        return default, annotation
    if get_origin(annotation) is Annotated:
        kind, *metadata = get_args(annotation)
        info = next(each for each in metadata if isinstance(each, ParameterInfo))
        return info, kind
    return ArgumentInfo(), annotation


def _argument(parameter: inspect.Parameter, info: ParameterInfo, _: Any) -> str:
    if info.metavar:
        return info.metavar
    name = parameter.name.upper().strip("_")
    return name if parameter.default is inspect.Parameter.empty else f"[{name}]"


def _names(info: ParameterInfo, name: str) -> str:
    declared = tuple(info.param_decls or ())
    # Inside `Annotated` there is no default, and typer takes the first name for one.
    if isinstance(info.default, str) and info.default.startswith("-"):
        declared = (info.default, *declared)
    declared = declared or (f"--{name.replace('_', '-')}",)
    return ", ".join(f"`{each}`" for each in declared)


def _meaning(parameter: inspect.Parameter, info: ParameterInfo, kind: Any) -> str:
    parts = [info.help or ""]
    parts += [
        f"({', '.join(str(member.value) for member in each)})"
        for each in (kind, *get_args(kind))
        if inspect.isclass(each) and issubclass(each, Enum)
    ]
    default = parameter.default
    has_default = not isinstance(default, bool | ParameterInfo | None)
    if has_default and default is not inspect.Parameter.empty and info.show_default is True:
        parts.append(f"(default: {default})")
    return " ".join(part for part in parts if part)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
