"""`monarq doctor`: is everything as it should be, and if not, what to do."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

import typer

from monarq.cli.calling import Caller, calling
from monarq.cli.checks import (
    Finding,
    Level,
    check_broker,
    check_files,
    check_schema,
    check_settings,
    check_store,
    check_workers,
)
from monarq.errors import MonarqError, SettingsError
from monarq.places import without_password

if TYPE_CHECKING:
    from monarq.client.async_client import AsyncClient


def add_to(app: typer.Typer) -> None:
    app.command("doctor", rich_help_panel="Looking")(calling(doctor))


def doctor(caller: Caller) -> None:
    """Check store, schema, clock, disk, permissions, settings, workers and buffer.

    Says what to do about what is not as it should be. Exit code 1 if there is a problem.
    """
    findings = list(check_settings())
    findings += _on_this_machine(caller)
    findings += _of_broker(caller)
    is_bad = any(finding.level is Level.PROBLEM for finding in findings)

    def print_findings() -> None:
        from monarq.cli.tables import state_text
        from monarq.cli.terminal import shown

        for finding in findings:
            padding = " " * (8 - len(finding.level))
            what = shown(f"{finding.check}: {finding.what}")
            print(f"{state_text(finding.level)}{padding} {what}")
            if finding.todo is not None:
                print(f"{'':9}→ {shown(finding.todo)}")

    caller.answer({"ok": not is_bad, "findings": findings}, print_findings)
    if is_bad:
        raise typer.Exit(1)


def _on_this_machine(caller: Caller) -> list[Finding]:
    """Nothing, if the broker is behind a URL: its files are on its machine."""
    from monarq.places import data_directory
    from monarq.settings_loading import load

    if caller.urls:
        return []
    try:
        settings = load(check=False).settings
        directory = data_directory(settings)
    except SettingsError as error:
        return [Finding("data directory", Level.PROBLEM, str(error), "correct the settings")]
    return [*check_files(settings, directory), *check_schema(caller.store_address)]


def _of_broker(caller: Caller) -> list[Finding]:
    try:
        caller.check_store_is_there()
        return caller.ask(lambda client: _asked(client, caller))
    except SettingsError:
        return []  # told already
    except MonarqError as error:
        if caller.urls:
            todo = "start one there with `monarq serve`, or correct --url or --token"
            return [Finding("broker", Level.PROBLEM, str(error), todo)]
        where = without_password(caller.store_address)
        todo = "start it, or name another one with --store"
        return [Finding("store", Level.PROBLEM, f"{where}: {error}", todo)]


async def _asked(client: AsyncClient, caller: Caller) -> list[Finding]:
    findings: list[Finding] = []
    checks: list[AsyncIterator[Finding]] = [
        check_broker(client) if caller.urls else check_store(client, caller.store_address),
        check_workers(client),
    ]
    for check in checks:
        findings += [finding async for finding in check]
    return findings
