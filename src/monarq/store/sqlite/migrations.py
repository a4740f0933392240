"""Brings a file to the schema that this version knows.

Each file in `sql/` is one step, named by its number, and runs once; `user_version` says how
many have run. A step that was released is never changed.
"""

from __future__ import annotations

import sqlite3
from importlib import resources

from monarq.errors import SchemaVersionError

# "mnrq": lets tools tell our files from others.
_APPLICATION_ID = 0x6D6E7271


def check(db: sqlite3.Connection) -> None:
    """Refuse a file that is not ours, or newer than we are, before anything is changed in it."""
    version, known = _pragma(db, "user_version"), len(_steps())
    if version > known:
        raise SchemaVersionError(
            f"the store has schema {version}, and this Monarq knows {known}: upgrade Monarq"
        )
    if version == 0:
        _refuse_foreign_file(db)


def migrate(db: sqlite3.Connection) -> None:
    """Run the steps that are missing. Inside the caller's transaction, so that of several
    processes that open a new file at once, one makes the tables and the others find them."""
    check(db)
    steps = _steps()
    version = _pragma(db, "user_version")
    for number, script in enumerate(steps[version:], version + 1):
        for statement in _statements(script):
            db.execute(statement)
        db.execute(f"pragma user_version = {number}")
    if version == 0:
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


def _steps() -> list[str]:
    folder = resources.files("monarq.store.sqlite") / "sql"
    files = sorted((file for file in folder.iterdir() if file.name.endswith(".sql")), key=_name)
    return [file.read_text("utf-8") for file in files]


def _name(file: object) -> str:
    return str(getattr(file, "name", ""))


def _statements(script: str) -> list[str]:
    statements, pending = [], ""
    for line in script.splitlines(keepends=True):
        pending += line
        if sqlite3.complete_statement(pending):
            statements.append(pending)
            pending = ""
    return statements
