"""`monarq config`: the settings in force, where each came from, and whether they can be used."""

from __future__ import annotations

import json
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from monarq.cli import job_settings
from monarq.cli.messages import answers, complain
from monarq.cli.settings_reference import settings_tables
from monarq.config import FIELDS
from monarq.errors import SettingsError
from monarq.settings_loading import Loaded, load, shown, value_text

app = typer.Typer(help="Look at the settings, and set the defaults of jobs.", no_args_is_help=True)


job_settings.add_to(app)


def add_to(main: typer.Typer) -> None:
    main.add_typer(app, name="config")


File = Annotated[str | None, typer.Option("--config", metavar="FILE", help="TOML file to read")]


@app.command()
def show(
    config: File = None,
    as_json: Annotated[bool, typer.Option("--json", help="JSON instead of a table")] = False,
    changed: Annotated[
        bool, typer.Option("--changed", help="only those that are not at their default")
    ] = False,
) -> None:
    """Print the settings in force and where each came from. Secrets are not shown."""
    loaded = load(file=config)
    warn(loaded)
    rows = [
        (field, shown(field, getattr(loaded.settings, field.name)), loaded.sources[field.name])
        for field in FIELDS.values()
        if not changed or loaded.sources[field.name].kind != "default"
    ]
    if as_json:
        settings = {
            field.name: {"value": value, "source": source.kind, "from": source.name or None}
            for field, value, source in rows
        }
        file = str(loaded.file) if loaded.file else None
        print(json.dumps({"file": file, "settings": settings}, indent=2, ensure_ascii=False))
        return
    if not rows:
        complain("all settings are at their defaults")
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("setting", "value", "from"):
        table.add_column(heading, overflow="fold")
    for field, value, source in rows:
        style = "" if source.kind == "default" else "bold"
        table.add_row(
            Text(field.name, style), Text(value_text(value), style), Text(str(source), "dim")
        )
    answers().print(table)


@app.command()
def check(
    config: File = None,
    as_json: Annotated[bool, typer.Option("--json", help="JSON on stdout")] = False,
) -> None:
    """Say whether a server could start with these settings; exit code 2 if not."""
    try:
        loaded = load(file=config)
    except SettingsError as error:
        if not as_json:
            raise
        print(json.dumps({"ok": False, "errors": str(error).splitlines()}, ensure_ascii=False))
        raise typer.Exit(2) from None
    warn(loaded)
    if as_json:
        print(json.dumps({"ok": True, "warnings": loaded.warnings}, ensure_ascii=False))
    else:
        complain(f"the settings can be used ({loaded.file or 'no file'})")


@app.command()
def reference(
    as_json: Annotated[bool, typer.Option("--json", help="JSON instead of Markdown")] = False,
) -> None:
    """Print all settings with their defaults and meaning, as Markdown."""
    if not as_json:
        print(settings_tables())
        return
    rows = [
        {
            "name": field.name,
            "default": field.default,
            "what": field.description,
            "flag": field.flag,
            "variable": field.variable,
        }
        for field in FIELDS.values()
    ]
    print(json.dumps(rows, indent=2, ensure_ascii=False))


def warn(loaded: Loaded) -> None:
    for warning in loaded.warnings:
        complain(warning)
