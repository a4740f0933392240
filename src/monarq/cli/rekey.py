"""`monarq rekey`: everything that a store has sealed, under the first of the encryption keys."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from monarq.cli.calling import Caller, calling, say
from monarq.errors import EncryptionKeyError, InvalidRequestError

if TYPE_CHECKING:
    from monarq.store.rekeying import RekeyReport, RekeyStep

_TELL_EVERY_SECONDS = 2.0


def add_to(app: typer.Typer) -> None:
    app.command("rekey", rich_help_panel="Running a broker")(calling(rekey))


def rekey(
    caller: Caller,
    rows: Annotated[
        int, typer.Option("--rows", min=1, max=1000, help="rows of one step, at most")
    ] = 100,
) -> None:
    """Encrypt a store's payloads, errors, results and output anew, with the first encryption key.

    The setting encryption_keys names the keys: the new one first, all others behind it. Works in
    small steps while brokers serve the store; safe to kill and run again. At the end it says how
    many values each key still seals. Exit code 1 if one of them is not the first key.
    """
    if caller.urls:
        raise InvalidRequestError("rekey works on a store: give --store instead of --url")
    if caller.store_address.startswith("memory:"):
        raise InvalidRequestError("a store in memory is gone when its process ends: nothing to do")
    keys = caller.encryption_keys
    if not keys:
        raise EncryptionKeyError(
            "rekey needs the setting encryption_keys: the new key first, the old ones behind it"
        )
    caller.check_store_is_there()
    report = asyncio.run(_rekey(caller, keys, rows))
    caller.answer(_value(report), _text(report))
    if not report.is_done:
        raise typer.Exit(1)


async def _rekey(caller: Caller, keys: list[bytes], rows: int) -> RekeyReport:
    from monarq.crypto import Cipher
    from monarq.store import open_store
    from monarq.store.rekeying import rekey

    told_at = time.monotonic()

    def told(report: RekeyReport, step: RekeyStep) -> None:
        nonlocal told_at
        if time.monotonic() - told_at >= _TELL_EVERY_SECONDS:
            told_at = time.monotonic()
            say(
                f"pass {report.passes}, {step.table}: {report.rows:,} rows looked at, "
                f"{report.changed:,} values encrypted anew"
            )

    _, schema = caller.sealing
    async with await open_store(caller.store_address, keys=keys, schema=schema) as store:
        return await rekey(store, Cipher(keys), limit=rows, told=told)


def _value(report: RekeyReport) -> dict[str, Any]:
    return {
        "done": report.is_done,
        "firstKey": report.first_key,
        "changed": report.changed,
        "keys": report.keys,
        "unreadable": report.unreadable,
        "passes": report.passes,
        "rows": report.rows,
    }


def _text(report: RekeyReport) -> str:
    lines = [f"{report.changed:,} values encrypted anew"]
    for key, count in sorted(report.keys.items(), key=lambda one: one[0] != report.first_key):
        which = "the first key" if key == report.first_key else "another key"
        lines.append(f"{count:,} values under {key}, {which}")
    if report.unreadable:
        lines.append(
            f"{report.unreadable:,} values cannot be opened: add their keys to encryption_keys; "
            "if the key is there, the value was changed or moved"
        )
    elif report.is_done:
        lines.append("no value needs another key than the first")
    return "\n".join(lines)
