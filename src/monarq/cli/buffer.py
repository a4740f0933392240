"""`monarq buffer`: look at pushes that could not be replayed, and put them back."""

from __future__ import annotations

import json
from typing import Annotated

import msgspec
import typer
from rich.table import Table
from rich.text import Text

from monarq.broker.failover import store_name
from monarq.broker.requeue import list_files, read_file, requeue
from monarq.broker.set_aside import readable
from monarq.cli.messages import answers, complain
from monarq.config import Settings
from monarq.crypto import Cipher, parse_key
from monarq.places import buffer_directory
from monarq.settings_loading import load

app = typer.Typer(help="Look at pushes that could not be replayed.", no_args_is_help=True)


def add_to(main: typer.Typer) -> None:
    main.add_typer(app, name="buffer")


File = Annotated[str | None, typer.Option("--config", metavar="FILE", help="TOML file to read")]
Name = Annotated[str, typer.Argument(help="a file, as `monarq buffer list` shows it")]
DataDir = Annotated[
    str | None, typer.Option("--data-dir", help="data directory of the broker", show_default=False)
]
Store = Annotated[
    str | None, typer.Option("--store", help="store address of the broker", show_default=False)
]


@app.command("list")
def list_set_aside(
    config: File = None,
    data_dir: DataDir = None,
    as_json: Annotated[bool, typer.Option("--json", help="JSON on stdout")] = False,
) -> None:
    """List the files of what was set aside, with the reason of the first push in each."""
    settings = _settings(config, data_dir, None)
    directory = buffer_directory(settings)
    files = list_files(directory, _cipher(settings))
    if as_json:
        rows = [msgspec.to_builtins(file) for file in files]
        print(json.dumps({"directory": str(directory), "files": rows}, ensure_ascii=False))
        return
    if not files:
        complain(f"nothing was set aside in {directory}")
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("file", "pushes", "unreadable bytes", "reason"):
        table.add_column(heading, overflow="fold")
    for file in files:
        cells = (file.name, str(file.pushes), str(file.unreadable_bytes), file.reason)
        table.add_row(*(Text(cell) for cell in cells))
    answers().print(table)


@app.command()
def show(name: Name, config: File = None, data_dir: DataDir = None) -> None:
    """Print each push of a file, decrypted, as a line of JSON: why it was set aside, and `items`
    as `POST /api/v1/push` takes them."""
    settings = _settings(config, data_dir, None)
    for reason, push in read_file(buffer_directory(settings), name, _cipher(settings)):
        items = [readable(item) for item in push.items]
        line = {"reason": reason, "producer": push.producer, "items": items}
        print(msgspec.json.encode(line).decode())


@app.command("requeue")
def put_back(
    name: Name, config: File = None, data_dir: DataDir = None, store: Store = None
) -> None:
    """Put the pushes of a file back into the buffer and remove the file. A running broker
    replays them within seconds, and sets aside again what the store still refuses."""
    settings = _settings(config, data_dir, store)
    done = requeue(
        buffer_directory(settings), name, store=store_name(settings), cipher=_cipher(settings)
    )
    complain(f"{done.pushes} pushes are in the buffer again")
    if done.unreadable_bytes:
        complain(f"{done.unreadable_bytes} bytes cannot be read: the file stays")
        raise typer.Exit(1)


def _settings(config: str | None, data_dir: str | None, store: str | None) -> Settings:
    return load({"data_dir": data_dir, "store": store}, file=config, check=False).settings


def _cipher(settings: Settings) -> Cipher | None:
    keys = [parse_key(key) for key in settings.encryption_keys]
    return Cipher(keys) if keys else None
