"""What `monarq doctor` looks at. Each check says how it is, and what to do if that is not good.

Looks, and repairs nothing.
"""

from __future__ import annotations

import os
import shutil
import stat
import time
from collections.abc import AsyncIterator, Iterator
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from monarq.cli.formats import duration, size
from monarq.clock import SECOND, SystemClock
from monarq.config import Settings
from monarq.errors import MonarqError, SettingsError
from monarq.model.pages import walk
from monarq.places import is_postgres, without_password

if TYPE_CHECKING:
    from monarq.client.async_client import AsyncClient

_LITTLE_SPACE = 1 << 30
_NO_SPACE = 100 << 20
_CLOCK_WARNING_SECONDS = 1.0
_CLOCK_PROBLEM_SECONDS = 30.0


class Level(StrEnum):
    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"


class Finding(msgspec.Struct, frozen=True):
    check: str
    level: Level
    what: str
    todo: str | None = None


# --- settings and files ----------------------------------------------------------------------


def check_settings() -> Iterator[Finding]:
    from monarq.settings_loading import load

    try:
        loaded = load()
    except SettingsError as error:
        for line in str(error).splitlines():
            yield Finding("settings", Level.PROBLEM, line, "correct it where it stands")
        return
    for warning in loaded.warnings:
        yield Finding("settings", Level.WARNING, warning, "unset the variable, or correct its name")
    yield from check_tokens(loaded.settings)
    where = str(loaded.file) if loaded.file is not None else "no settings file"
    yield Finding("settings", Level.OK, f"can be used ({where})")


def check_tokens(settings: Settings) -> Iterator[Finding]:
    """Whether tokens that somebody issued for another service are refused."""
    if not settings.auth or not (
        settings.jwt_secret or settings.jwt_public_key or settings.jwt_jwks
    ):
        return
    open_to = [
        name
        for name, value in (("iss", settings.jwt_issuer), ("aud", settings.jwt_audience))
        if not value
    ]
    if open_to:
        what = f"`{'` and `'.join(open_to)}` of tokens are not checked"
        todo = "set jwt_issuer and jwt_audience, or tokens for other services are good here, too"
        yield Finding("tokens", Level.WARNING, what, todo)
    else:
        yield Finding("tokens", Level.OK, "`iss` and `aud` are checked")


def check_files(settings: Settings, directory: Path) -> Iterator[Finding]:
    """The data directory, what is in it, and the space around it."""
    yield from _directory(directory)
    yield from _space(directory)
    if settings.api_keys:
        yield from _private("key file", Path(settings.api_keys).expanduser())
    elif (directory / "api-keys.json").exists():
        yield from _private("key file", directory / "api-keys.json")
    yield from _set_aside(directory)


def _directory(directory: Path) -> Iterator[Finding]:
    if not os.access(directory, os.W_OK | os.X_OK):
        todo = f"chown it to the user that runs Monarq, or set --data-dir (it is {directory})"
        yield Finding("data directory", Level.PROBLEM, "cannot be written to", todo)
        return
    mode = stat.S_IMODE(directory.stat().st_mode)
    if mode & 0o022:
        yield Finding(
            "data directory",
            Level.PROBLEM,
            f"others may write to {directory} (mode {mode:o})",
            f"chmod 700 {directory}",
        )
    elif mode & 0o055:
        yield Finding(
            "data directory",
            Level.WARNING,
            f"others may read {directory} (mode {mode:o})",
            f"chmod 700 {directory}",
        )
    else:
        yield Finding("data directory", Level.OK, f"{directory}, for this user alone")


def _space(directory: Path) -> Iterator[Finding]:
    free = shutil.disk_usage(directory).free
    what = f"{size(free)} free in {directory}"
    if free < _NO_SPACE:
        yield Finding("disk", Level.PROBLEM, what, "make room: pushes will fail")
    elif free < _LITTLE_SPACE:
        yield Finding("disk", Level.WARNING, what, "make room, or shorten the queues' retention")
    else:
        yield Finding("disk", Level.OK, what)


def _private(what: str, path: Path) -> Iterator[Finding]:
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
    except OSError as error:
        todo = "`monarq api-key create` makes it, or set api_keys to where it is"
        yield Finding(what, Level.PROBLEM, f"{path}: {error.strerror}", todo)
        return
    if mode & 0o022:
        yield Finding(what, Level.PROBLEM, f"others may write {path}", f"chmod 600 {path}")
    elif mode & 0o044:
        yield Finding(what, Level.WARNING, f"others may read {path}", f"chmod 600 {path}")
    else:
        yield Finding(what, Level.OK, f"{path}, for this user alone")


def _set_aside(directory: Path) -> Iterator[Finding]:
    from monarq.broker.requeue import list_files

    try:
        files = list_files(directory / "buffer", None)
    except OSError as error:
        yield Finding("buffer", Level.PROBLEM, str(error), "look at its permissions")
        return
    if files:
        yield Finding(
            "buffer",
            Level.WARNING,
            f"{len(files):,} files were set aside: {files[0].reason}",
            "`monarq buffer list` shows them, `monarq buffer requeue` puts them back",
        )
    else:
        yield Finding("buffer", Level.OK, "nothing was set aside")


# --- store and broker ------------------------------------------------------------------------


def check_schema(address: str) -> Iterator[Finding]:
    """Check the schema of a SQLite file before it is opened, which would upgrade it."""
    path = Path(address.removeprefix("sqlite:///"))
    if not address.startswith("sqlite:///"):
        return
    if not path.exists():
        yield Finding("schema", Level.OK, f"{path} is not there yet; the first command makes it")
        return
    import sqlite3

    from monarq.store.sqlite import migrations

    try:
        db = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)
        try:
            version = migrations.check(db)
        finally:
            db.close()
    except MonarqError as error:
        yield Finding("schema", Level.PROBLEM, str(error), "do that, or use another store")
    except sqlite3.Error as error:
        todo = "restore it from a backup, or name another one with --store"
        yield Finding("schema", Level.PROBLEM, f"{path} cannot be read: {error}", todo)
    else:
        yield Finding("schema", Level.OK, f"version {version} of {path}")


async def check_store(client: AsyncClient, address: str) -> AsyncIterator[Finding]:
    """A store that this process opened."""
    from monarq.client.embedded import EmbeddedLink

    assert isinstance(client.link, EmbeddedLink)
    figures = await client.link.broker.store.health_figures()
    kept = size(int(figures["databaseBytes"]))
    yield Finding("store", Level.OK, f"{without_password(address)} answers, {kept}")
    if is_postgres(address):
        yield Finding("schema", Level.OK, "is that of this version")
    began = SystemClock().now()
    record = await client.admin.put_record("doctor", "clock", b"{}", keep_seconds=60)
    yield _clock(record.updated_at, began, "the store's")


async def check_broker(client: AsyncClient) -> AsyncIterator[Finding]:
    """A broker behind HTTP."""
    from monarq.times import parse_time
    from monarq.wire.status import StatusAnswer

    link: Any = client.link
    began = SystemClock().now()
    status: StatusAnswer = await link.call("GET", "/api/v1/status", StatusAnswer)
    up = duration(status.uptime_seconds)
    yield Finding("broker", Level.OK, f"{status.state}, version {status.version}, up for {up}")
    if status.store_ok:
        yield Finding("store", Level.OK, "the broker reaches it")
    else:
        todo = "start the store, or correct the broker's --store; pushes are buffered meanwhile"
        yield Finding("store", Level.PROBLEM, status.store_error or "not reached", todo)
    yield _clock(parse_time(status.timestamp, "timestamp"), began, "the broker's")
    if status.maintenance_push or status.maintenance_pop:
        todo = "end the maintenance when it is over"
        yield Finding("maintenance", Level.WARNING, "the broker is in maintenance", todo)
    buffer = status.buffer
    if buffer.set_aside:
        todo = "`monarq buffer list` on that machine shows them"
        what = f"{len(buffer.set_aside):,} files were set aside"
        yield Finding("buffer", Level.WARNING, what, todo)
    elif buffer.failing is not None:
        yield Finding("buffer", Level.PROBLEM, buffer.failing, "make room, or look at permissions")
    elif buffer.records:
        what = f"{buffer.records:,} records wait for the store"
        yield Finding("buffer", Level.WARNING, what, "they are replayed when it is back")
    else:
        yield Finding("buffer", Level.OK, "empty, nothing was set aside")


def _clock(theirs: int, began: int, whose: str) -> Finding:
    """Their time was taken between `began` and now."""
    ended = SystemClock().now()
    away = max(began - theirs, theirs - ended, 0) / SECOND
    if away < _CLOCK_WARNING_SECONDS:
        return Finding("clock", Level.OK, f"agrees with {whose}")
    ahead = "behind" if theirs > ended else "ahead of"
    level = Level.PROBLEM if away > _CLOCK_PROBLEM_SECONDS else Level.WARNING
    todo = "let both machines keep time by NTP"
    return Finding("clock", level, f"{duration(away)} {ahead} {whose}", todo)


async def check_workers(client: AsyncClient) -> AsyncIterator[Finding]:
    from monarq.jobs.identity import is_alive
    from monarq.jobs.presence import is_lost, read_worker
    from monarq.operations.records import WORKER_KIND

    now = time.time_ns() // 1_000
    there, lost = 0, []
    async for record in walk(
        lambda limit, after: client.admin.list_records(WORKER_KIND, limit=limit, after=after)
    ):
        info = read_worker(record)
        if info is None:
            continue
        here = info.process.host == os.uname().nodename
        gone = here and not is_alive(info.process)
        if info.state == "stopped":
            continue
        if gone or is_lost(record, info, now):
            lost.append(info.id)
        else:
            there += 1
    if lost:
        yield Finding(
            "workers",
            Level.WARNING,
            f"{len(lost):,} were lost: {', '.join(lost[:3])}",
            "their jobs run again when their leases are over; `monarq worker start` starts others",
        )
    else:
        yield Finding("workers", Level.OK, f"{there:,} are there, none was lost")
