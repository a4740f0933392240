"""One process of the server: a broker, the application over it, and the sockets in front.

Starts them in order, runs until it is told to stop, and drains: what is under way is finished,
within a bound. Starts no other process.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import socket
import ssl
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from importlib.metadata import version
from pathlib import Path

from monarq.broker.broker import Broker
from monarq.broker.peers import Peers
from monarq.clock import SystemClock
from monarq.config import Settings
from monarq.crypto import parse_key
from monarq.errors import SettingsError, StoreUnavailableError
from monarq.places import buffer_directory, is_postgres, store_address
from monarq.server.app import Application
from monarq.server.auth import Authenticator
from monarq.server.http import Connection, Endpoint, Limits
from monarq.server.listening import BACKLOG, ListenError, load_certificate, tls_context
from monarq.server.local_callers import LocalCallers, nobody_is_proven
from monarq.server.observing import Observer
from monarq.server.routes import ROUTES
from monarq.server.service import Service
from monarq.server.session_key import session_key, settle
from monarq.server.sessions import Sessions
from monarq.server.tracing import Spans
from monarq.server.watch.history import History
from monarq.server.watch.streams import Streams
from monarq.store import Store, open_store

logger = logging.getLogger("monarq.serving")

_LEAST_CLOSE_SECONDS = 2.0
"""What the store is given to close, also when the drain took all its time."""


class Worker:
    def __init__(
        self,
        settings: Settings,
        listeners: Sequence[socket.socket],
        *,
        ready: Callable[[], None],
        start_peers: Callable[[], Awaitable[Peers]] | None = None,
        run_dir: Path | None = None,
        number: int = 0,
        link_code: str | None = None,
    ) -> None:
        self._settings = settings
        self._listeners = listeners
        self._ready = ready
        self._start_peers = start_peers
        self._run_dir = run_dir
        self._number = number
        self._link_code = link_code
        self._stop = asyncio.Event()
        self._stop_now = asyncio.Event()
        self._streams: Streams | None = None
        self._tls: ssl.SSLContext | None = None

    async def run(self) -> None:
        """Serve until told to stop. Raises `MonarqError` if it cannot begin."""
        async with AsyncExitStack() as stack:
            starting = asyncio.create_task(self._start(stack))
            if not await self._unless(self._stop, starting):
                return
            endpoint, broker, servers = starting.result()
            self._ready()
            await self._stop.wait()
            await self._drain(endpoint, broker, servers)

    def stop(self) -> None:
        """Drain, and then end."""
        self._stop.set()

    def stop_now(self) -> None:
        """End without waiting for what is under way."""
        logger.warning("stopping now")
        self._stop_now.set()
        self._stop.set()

    def stop_harder(self) -> None:
        """The first time it drains; told so again, it ends now."""
        if self._stop.is_set():
            self.stop_now()
        else:
            self.stop()

    async def _start(
        self, stack: AsyncExitStack
    ) -> tuple[Endpoint, Broker, list[asyncio.AbstractServer]]:
        settings = self._settings
        self._tls = tls = tls_context(settings)
        authenticator = None
        if settings.auth:
            authenticator = Authenticator(settings)
            await authenticator.start()
            stack.push_async_callback(authenticator.close)
        peers = None
        if self._start_peers is not None:
            peers = await self._start_peers()
            stack.callback(peers.close)
        broker = await Broker.start(
            opener(settings),
            settings,
            buffer_dir=buffer_directory(settings) if settings.buffer_enabled else None,
            peers=peers,
        )
        stack.push_async_callback(self._close_broker, broker)
        service = Service(broker, settings, SystemClock().now(), version("monarq"))
        authenticate = None
        if authenticator is None:
            service.local = LocalCallers.start(self._link_code, service.clock)
        else:
            key = session_key(settings)
            service.sessions = Sessions(
                authenticator,
                key,
                lambda: broker.store,
                service.clock,
                time.monotonic,
                tls=tls is not None,
            )
            authenticate = service.sessions.authenticate
            settling = asyncio.create_task(settle(lambda: broker.store, key))
            stack.push_async_callback(_cancelled, settling)
        stack.push_async_callback(service.snapshots.close)
        stack.push_async_callback(service.sampler.close)
        history = History(service.snapshots, lambda: broker.store, service.clock)
        keeping = asyncio.create_task(history.keep())
        stack.push_async_callback(_cancelled, keeping)
        self._streams = service.streams
        metrics = service.metrics
        stack.push_async_callback(metrics.close)
        if self._run_dir is not None:
            await metrics.join(self._run_dir, self._number)
        application = Application(
            service,
            ROUTES,
            authenticate=authenticate,
            identify=service.local.identify if service.local is not None else nobody_is_proven,
            observe=Observer(settings, metrics.requests, self._spans(stack), service.slow).observe,
        )
        endpoint = Endpoint(
            application,
            Limits.of(settings),
            counters=metrics.connections,
            secure=tls is not None,
        )
        stack.callback(endpoint.close)
        servers = [await self._listen(endpoint, listener, tls) for listener in self._listeners]
        return endpoint, broker, servers

    def _spans(self, stack: AsyncExitStack) -> Spans | None:
        if not self._settings.tracing:
            return None
        spans = Spans(version("monarq"))
        stack.push_async_callback(asyncio.to_thread, spans.close)
        return spans

    async def _listen(
        self, endpoint: Endpoint, listener: socket.socket, tls: ssl.SSLContext | None
    ) -> asyncio.AbstractServer:
        return await endpoint.loop.create_server(
            functools.partial(Connection, endpoint),
            sock=listener,
            backlog=BACKLOG,
            ssl=tls,
            ssl_handshake_timeout=self._settings.header_timeout_seconds if tls else None,
            ssl_shutdown_timeout=endpoint.limits.linger_seconds if tls else None,
        )

    def reload(self) -> None:
        """Read the certificate again."""
        if self._tls is None:
            logger.info("there is no certificate to read again")
            return
        try:
            load_certificate(self._tls, self._settings)
        except ListenError as error:
            logger.error("the certificate was not changed: %s", error)
        else:
            logger.info("the certificate was read again")

    async def _drain(
        self, endpoint: Endpoint, broker: Broker, servers: Sequence[asyncio.AbstractServer]
    ) -> None:
        """No new connections or calls; those under way are finished, the waiting pops empty."""
        logger.info("draining", extra={"fields": {"connections": len(endpoint.connections)}})
        # Whoever has connected already is taken, not reset.
        await asyncio.sleep(0)
        for server in servers:
            server.close()
        if self._streams is not None:
            self._streams.end()
        endpoint.drain()
        broker.drain()
        emptied = asyncio.create_task(endpoint.emptied())
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._settings.drain_seconds):
                await self._unless(self._stop_now, emptied)
        cut = len(endpoint.connections)
        if cut:
            logger.warning("connections were cut", extra={"fields": {"connections": cut}})
        endpoint.close()

    async def _close_broker(self, broker: Broker) -> None:
        seconds = 0.0 if self._stop_now.is_set() else self._settings.drain_seconds
        try:
            async with asyncio.timeout(seconds + _LEAST_CLOSE_SECONDS):
                closing = asyncio.create_task(broker.close(seconds))
                await self._unless(self._stop_now, closing)
        except TimeoutError:
            logger.warning("the store did not close in time")

    async def _unless(self, event: asyncio.Event, task: asyncio.Task[object]) -> bool:
        """Wait for the task, unless the event comes first: then it is cancelled."""
        other = asyncio.create_task(event.wait())
        try:
            await asyncio.wait({other, task}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            other.cancel()
            if not task.done():
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task
        if task.cancelled():
            return False
        task.result()
        return True


async def _cancelled(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait({task})


def opener(settings: Settings) -> Callable[[], Awaitable[Store]]:
    """Opens the store that the settings name.

    PostgreSQL may come up later than we do; a file that cannot be opened the first time never
    will be, so that is an error of the settings.
    """
    address = store_address(settings)
    was_open = is_postgres(address)

    async def open_it() -> Store:
        nonlocal was_open
        try:
            store = await open_store(
                address,
                keys=[parse_key(key) for key in settings.encryption_keys],
                schema=settings.schema,
                connections=settings.store_pool_max,
                timeout_seconds=settings.store_timeout_seconds,
            )
        except StoreUnavailableError as error:
            if was_open:
                raise
            raise SettingsError(f"store: {error}") from None
        was_open = True
        return store

    return open_it
