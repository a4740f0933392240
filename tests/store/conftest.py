"""Fixtures for the tests that hold every store to the same promises.

A test that takes `store` runs once on each kind of store, on a SQLite file and on the oldest and
the newest PostgreSQL, each time on an empty one of its own. Which of them run in memory and on the
oldest PostgreSQL says `tests/tiers.py`. The store's time is `clock`, which stands still until the
test moves it.

A test that also takes `open_another` (a second store object on the same data, as another
process would open it, or the same one after a restart) runs on all but the memory store. One
for certain stores alone says `@pytest.mark.parametrize("place", ["sqlite"], indirect=True)`.

    async def test_something(store: Store, open_another: OpenStore, clock: ManualClock) -> None:
        other = await open_another()
"""

import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import pytest

from monarq.clock import Clock, ManualClock
from monarq.store import Store
from tests.kept_connections import KeptConnections
from tests.kept_schemas import empty_schema
from tests.shared_postgres import POSTGRES_NAMES

#: What a store is opened with unless a test says otherwise.
KEY = bytes(range(32))

#: Kinds of store, as they appear in the names of tests. The first cannot be opened twice.
STORE_NAMES = ("memory", "sqlite", *POSTGRES_NAMES)
DURABLE_STORE_NAMES = STORE_NAMES[1:]


@dataclass(frozen=True)
class Place:
    """Where a store keeps its data: what `open_store` takes. Empty at the start of a test."""

    name: str
    address: str
    schema: str = "monarq"

    @property
    def is_postgres(self) -> bool:
        return self.name in POSTGRES_NAMES


class OpenStore(Protocol):
    """Opens one more store object on the test's data; it is closed when the test ends."""

    async def __call__(
        self, *, clock: Clock | None = None, keys: Sequence[bytes] = (KEY,)
    ) -> Store: ...


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    markers = metafunc.definition.iter_markers("parametrize")
    chosen = any(marker.args[0] == "place" for marker in markers)
    if "place" in metafunc.fixturenames and not chosen:
        twice = "open_another" in metafunc.fixturenames
        names = DURABLE_STORE_NAMES if twice else STORE_NAMES
        metafunc.parametrize("place", names, indirect=True)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def place(
    request: pytest.FixtureRequest, tmp_path: Path, postgres_servers: Mapping[str, str]
) -> AsyncIterator[Place]:
    async with new_place(request.param, tmp_path, postgres_servers) as made:
        yield made


@pytest.fixture
async def store(
    place: Place, clock: ManualClock, kept_connections: KeptConnections
) -> AsyncIterator[Store]:
    opened = await kept_connections.open_store(
        place.address, clock=clock, keys=[KEY], schema=place.schema
    )
    async with opened:
        yield opened


@pytest.fixture
async def open_another(
    place: Place, clock: ManualClock, kept_connections: KeptConnections
) -> AsyncIterator[OpenStore]:
    async with contextlib.AsyncExitStack() as opened:

        async def another(*, clock: Clock | None = clock, keys: Sequence[bytes] = (KEY,)) -> Store:
            store = await kept_connections.open_store(
                place.address, clock=clock, keys=keys, schema=place.schema
            )
            return await opened.enter_async_context(store)

        yield another


@contextlib.asynccontextmanager
async def new_place(
    name: str, directory: Path, postgres_servers: Mapping[str, str]
) -> AsyncIterator[Place]:
    """An empty place for the kind of store with this name; cleaned up at the end."""
    if name == "memory":
        yield Place(name, "memory:")
    elif name == "sqlite":
        yield Place(name, f"sqlite:///{directory / 'store.db'}")
    else:
        async with empty_schema(postgres_servers[name]) as schema:
            yield Place(name, postgres_servers[name], schema)
