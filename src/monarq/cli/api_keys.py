"""`monarq api-key`: make, list and revoke the keys that callers identify themselves with."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from monarq.api_keys import ApiKey, create_key, read_keys, revoke_key
from monarq.cli.messages import answers, complain
from monarq.clock import DAY, SECOND, SystemClock
from monarq.places import data_directory
from monarq.settings_loading import load

app = typer.Typer(help="Make and revoke API keys.", no_args_is_help=True)


def add_to(main: typer.Typer) -> None:
    main.add_typer(app, name="api-key")


class KeyRole(StrEnum):
    READ = "read"
    WRITE = "write"
    JOBS = "jobs"
    ADMIN = "admin"


File = Annotated[
    Path | None,
    typer.Option(
        "--file",
        help="file of hashed keys",
        show_default="the setting api_keys, else api-keys.json in the data directory",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="JSON on stdout")]


@app.command()
def create(
    name: Annotated[str, typer.Argument(help="who will use it; stamped on what is pushed with it")],
    role: Annotated[
        KeyRole, typer.Option(help="what it may do; each includes the ones before it")
    ] = KeyRole.WRITE,
    days: Annotated[
        float | None,
        typer.Option(min=0, max=36_500, help="days until it ends", show_default="never"),
    ] = None,
    file: File = None,
    as_json: AsJson = False,
) -> None:
    """Make a key and print it. It is kept hashed, so this is the only time that it can be seen."""
    path = _path(file)
    now = SystemClock().now()
    expires_at = None if days is None else now + round(days * DAY)
    text, key = create_key(path, name=name, role=role.value, now=now, expires_at=expires_at)
    if as_json:
        print(json.dumps({"key": text, **_described(key), "file": str(path)}, ensure_ascii=False))
        return
    complain(f"key {key.id} for {name!r} ({role}) is in {path}; it is shown only now:")
    print(text)
    complain(f"serve with it: monarq serve --auth --api-keys {path}")


@app.command("list")
def list_keys(file: File = None, as_json: AsJson = False) -> None:
    """List the keys, without what they were hashed from."""
    path = _path(file)
    keys = read_keys(path) if path.exists() else []
    if as_json:
        rows = [_described(key) for key in keys]
        print(json.dumps({"file": str(path), "keys": rows}, ensure_ascii=False))
        return
    if not keys:
        complain(f"there are no keys in {path}")
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("id", "name", "role", "created", "ends"):
        table.add_column(heading, overflow="fold")
    for key in keys:
        ends = _time(key.expires_at) if key.expires_at is not None else "never"
        cells = (key.id, key.name, key.role, _time(key.created_at), ends)
        table.add_row(*(Text(cell) for cell in cells))
    answers().print(table)


@app.command()
def revoke(
    id_: Annotated[str, typer.Argument(metavar="ID", help="as `monarq api-key list` shows it")],
    file: File = None,
) -> None:
    """Take a key out of the file. Running servers notice within seconds."""
    key = revoke_key(_path(file), id_)
    complain(f"key {key.id} of {key.name!r} is revoked")


def _path(file: Path | None) -> Path:
    if file is not None:
        return file.expanduser().absolute()
    settings = load(check=False).settings
    if settings.api_keys:
        return Path(settings.api_keys).expanduser().absolute()
    return data_directory(settings) / "api-keys.json"


def _described(key: ApiKey) -> dict[str, str | None]:
    ends = None if key.expires_at is None else _time(key.expires_at)
    return {
        "id": key.id,
        "name": key.name,
        "role": key.role,
        "createdAt": _time(key.created_at),
        "expiresAt": ends,
    }


def _time(at: int) -> str:
    return datetime.fromtimestamp(at / SECOND, UTC).isoformat(timespec="seconds")
