"""An unknown error of the database is wrapped once, logged, and answered as `internal`."""

import contextlib
import logging
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path

import asyncpg
import pytest

from monarq.clock import ManualClock
from monarq.errors import InternalError, StoreUnavailableError
from monarq.model import Push, PushItem
from monarq.store import Store, open_store
from tests.store.conftest import Place

pytestmark = pytest.mark.smoke

_REASON = "the tests keep everybody from this table"


@contextlib.asynccontextmanager
async def no_writes(place: Place, table: str) -> AsyncIterator[None]:
    """Make each insert into a table fail with an error that no promise of Monarq speaks of."""
    if not place.is_postgres:
        db = sqlite3.connect(place.address.removeprefix("sqlite:///"))
        with contextlib.closing(db):
            db.execute(
                f"create trigger refuse before insert on {table} "
                f"begin select raise(abort, '{_REASON}'); end"
            )
            yield
            db.execute("drop trigger refuse")
        return
    connection = await asyncpg.connect(place.address)
    try:
        await connection.execute(
            f'create function "{place.schema}".refuse() returns trigger language plpgsql as '
            f"$$ begin raise exception '{_REASON}' using errcode = 'check_violation'; end $$"
        )
        await connection.execute(
            f'create trigger refuse before insert on "{place.schema}".{table} '
            f'for each row execute function "{place.schema}".refuse()'
        )
        yield
        await connection.execute(f'drop function "{place.schema}".refuse() cascade')
    finally:
        await connection.close()


on_disk = pytest.mark.parametrize(
    "place", ["sqlite", "postgres-oldest", "postgres-newest"], indirect=True
)


@on_disk
async def test_a_call_names_an_unknown_error_internal_and_logs_it_with_its_traceback(
    store: Store, place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    async with no_writes(place, "settings"):
        with caplog.at_level(logging.ERROR), pytest.raises(InternalError) as caught:
            await store.set_setting("key", "value")
    assert caught.value.code == "internal"
    assert _REASON not in str(caught.value)
    assert _REASON in str(caught.value.__cause__)
    [record] = caplog.records
    assert record.exc_info is not None
    assert _REASON in caplog.text
    await store.set_setting("key", "value")
    assert await store.get_settings() == {"key": "value"}


@on_disk
async def test_a_push_names_an_unknown_error_internal(store: Store, place: Place) -> None:
    async with no_writes(place, "segments"):
        with pytest.raises(InternalError):
            await store.push([Push([PushItem("q", b"1")])])
    [[pushed]] = await store.push([Push([PushItem("q", b"1")])])  # type: ignore[misc]
    assert pushed.seq == 1


async def test_a_file_that_is_no_database_stays_an_unavailable_store(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    path.write_bytes(b"no database at all, but text" * 1000)
    with pytest.raises(StoreUnavailableError, match="not a SQLite database"):
        await open_store(f"sqlite:///{path}", clock=ManualClock())
