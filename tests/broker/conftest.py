"""Fixtures for the tests of the broker on real stores.

A test that takes `broker` or `start_broker` runs in memory, on a SQLite file and on PostgreSQL,
each time on an empty store of its own, by a clock that stands still until the test moves it:
`broker` is one with the usual settings, `start_broker` makes one with other settings, and again
one on the same data. `@pytest.mark.parametrize("place", ["sqlite"], indirect=True)` picks stores.
"""

import contextlib
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any, Protocol

import pytest

from monarq.broker.broker import Broker
from monarq.broker.peers import Peers
from monarq.clock import Clock, ManualClock
from monarq.config import Settings
from monarq.store import Store
from tests.broker.watching import Watched
from tests.kept_connections import KeptConnections
from tests.shared_postgres import POSTGRES_NAMES
from tests.store.conftest import Place, new_place

STORE_NAMES = ("memory", "sqlite", POSTGRES_NAMES[-1])


class StartBroker(Protocol):
    """Starts a broker on the test's data; it is closed when the test ends."""

    async def __call__(
        self,
        *,
        clock: Clock | None = None,
        buffer_dir: Path | None = None,
        peers: Peers | None = None,
        **settings: Any,
    ) -> Broker: ...


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    markers = metafunc.definition.iter_markers("parametrize")
    chosen = any(marker.args[0] == "place" for marker in markers)
    if "place" in metafunc.fixturenames and not chosen:
        metafunc.parametrize("place", STORE_NAMES, indirect=True)


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
def watched() -> Watched:
    """What the brokers of the test ask of their stores."""
    return Watched()


@pytest.fixture
async def start_broker(
    place: Place, clock: ManualClock, watched: Watched, kept_connections: KeptConnections
) -> AsyncIterator[StartBroker]:
    async with contextlib.AsyncExitStack() as started:

        async def start(
            *,
            clock: Clock | None = clock,
            buffer_dir: Path | None = None,
            peers: Peers | None = None,
            **settings: Any,
        ) -> Broker:
            async def opener() -> Store:
                watched.opening()
                store = await kept_connections.open_store(
                    place.address, clock=clock, schema=place.schema
                )
                return watched.around(store)

            broker = await Broker.start(
                opener,
                Settings(store=place.address, schema=place.schema, **settings),
                clock=clock,
                buffer_dir=buffer_dir,
                peers=peers,
            )
            started.push_async_callback(broker.close, 10)
            return broker

        yield start


@pytest.fixture
async def broker(start_broker: StartBroker) -> Broker:
    return await start_broker()
