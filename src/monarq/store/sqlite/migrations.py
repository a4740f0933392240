"""Brings a file to the schema of this version.

Each file in `sql/` is a migration, and its name begins with the version that it leads to. The first
one makes all tables of an empty file; the others change what the one before has made. A migration
that was released is never changed. The file's version is SQLite's `user_version`.

A file whose version is lower than that of the first migration cannot be upgraded, and one with a
higher version than the last is of a newer Monarq. Both are refused before anything is written. All
missing migrations run in one transaction, so that a crash or an error leaves the file as it was,
and so that of several processes that open a new file, one makes the tables and the others find
them.
"""

from __future__ import annotations

import sqlite3
from importlib import resources

from monarq.errors import SchemaVersionError
from monarq.store.schema_versions import newer, older

# "mnrq": lets tools tell our files from others.
_APPLICATION_ID = 0x6D6E7271
_SQL = resources.files("monarq.store.sqlite") / "sql"


def check(db: sqlite3.Connection) -> int:
    """Return the file's version, 0 if it is empty. Raise `SchemaVersionError` if this Monarq
    cannot use the file."""
    version, versions = _pragma(db, "user_version"), list(_migrations())
    if version > versions[-1]:
        raise newer("the store", version, versions[-1])
    if 0 < version < versions[0]:
        raise older("the store", version)
    if version == 0:
        _refuse_foreign_file(db)
    return version


def migrate(db: sqlite3.Connection) -> None:
    """Run the missing migrations, inside the caller's transaction."""
    installed = check(db)
    for version, name in _migrations().items():
        if version > installed:
            for statement in _statements((_SQL / name).read_text("utf-8")):
                db.execute(statement)
            db.execute(f"pragma user_version = {version}")
    if installed == 0:
        db.execute(f"pragma application_id = {_APPLICATION_ID}")


def _refuse_foreign_file(db: sqlite3.Connection) -> None:
    [(tables,)] = db.execute("select count(*) from sqlite_master").fetchall()
    if tables:
        raise SchemaVersionError(
            "the file is the SQLite database of another program: give Monarq a file of its own"
        )


def _pragma(db: sqlite3.Connection, name: str) -> int:
    row: tuple[int] = db.execute(f"pragma {name}").fetchone()
    return row[0]


def _migrations() -> dict[int, str]:
    """Names of the files by version, in ascending order."""
    names = sorted(file.name for file in _SQL.iterdir() if file.name.endswith(".sql"))
    return {int(name.partition("_")[0]): name for name in names}


def _statements(script: str) -> list[str]:
    statements, pending = [], ""
    for line in script.splitlines(keepends=True):
        pending += line
        if sqlite3.complete_statement(pending):
            statements.append(pending)
            pending = ""
    return statements
