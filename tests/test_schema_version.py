"""The version of PostgreSQL's schema rises with every change of its SQL files."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from monarq.store.postgres.migrations import DIGEST, VERSION
from tests.schema_version import STORE, digest, recorded, refresh


def test_the_digest_beside_the_version_is_that_of_the_sql_files() -> None:
    assert digest(STORE) == DIGEST, (
        "a file below store/postgres/sql has changed, so databases of version "
        f"{VERSION} would keep the old procedures: run ./dev schema, which raises VERSION"
    )
    assert recorded(STORE) == (VERSION, DIGEST)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    copy = tmp_path / "postgres"
    shutil.copytree(STORE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    return copy


def _change_a_procedure(store: Path) -> None:
    procedure = store / "sql" / "procedures" / "ack.sql"
    procedure.write_text(procedure.read_text(encoding="utf-8") + "\n", encoding="utf-8")


def _add_a_migration(store: Path) -> None:
    (store / "sql" / "migrations" / "9999_empty.sql").write_text("", encoding="utf-8")


def _rename_a_migration(store: Path) -> None:
    scripts = sorted((store / "sql" / "migrations").iterdir())
    scripts[-1].rename(scripts[-1].with_name("9999_renamed.sql"))


@pytest.mark.parametrize("change", [_change_a_procedure, _add_a_migration, _rename_a_migration])
def test_every_change_of_the_files_raises_the_version_once(
    store: Path, change: Callable[[Path], None]
) -> None:
    assert not refresh(store)
    change(store)
    assert digest(store) != DIGEST
    assert refresh(store)
    assert recorded(store) == (VERSION + 1, digest(store))
    assert not refresh(store)


def test_a_line_of_either_side_of_a_conflict_is_raised_above_it(store: Path) -> None:
    _change_a_procedure(store)
    refresh(store)
    _add_a_migration(store)
    refresh(store)
    assert recorded(store) == (VERSION + 2, digest(store))
