"""Runs the server, in this process or in several, until it is told to stop."""

from __future__ import annotations

import asyncio
import functools
import logging
import secrets
import signal
import socket
import sys
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import msgspec
import uvloop

from monarq.broker.peers import Peers
from monarq.config import Settings
from monarq.errors import MonarqError, SettingsError
from monarq.server import logs
from monarq.server.allocation import keep_freed_memory
from monarq.server.garbage import spare_what_stays
from monarq.server.greeting import greet
from monarq.server.listening import close_all, open_listeners, raise_file_limit, reserve_port
from monarq.server.local_callers import new_link_code
from monarq.server.session_key import session_key
from monarq.server.supervisor import STOP_NOW, UNUSABLE, Supervisor
from monarq.server.worker import Worker
from monarq.settings_checks import contradictions

logger = logging.getLogger("monarq.serving")

RESERVED_FILES = 256
"""Descriptors that are not for clients: the store, the buffer, the notices, the log."""
FEW_CONNECTIONS = 1_000
LAST_PORT = 65_535
SUPERVISOR_GRACE_SECONDS = 10.0


def run(settings: Settings) -> int:
    """Serve until a signal says stop. Returns the exit code, or raises what is in the way."""
    problems = [f"{name}: {problem}" for name, problem in contradictions(settings)]
    if problems:
        raise SettingsError("\n".join(problems))
    if settings.auth:
        # Before there are several processes: they must agree.
        settings = msgspec.structs.replace(settings, session_key=session_key(settings))
    settings = _within_file_limit(settings)
    return _run_alone(settings) if settings.workers == 1 else _run_several(settings)


def _within_file_limit(settings: Settings) -> Settings:
    most = max(raise_file_limit() - RESERVED_FILES, 16)
    if settings.max_connections <= most:
        return settings
    level = logging.WARNING if most < FEW_CONNECTIONS else logging.DEBUG
    logger.log(level, "the limit on open files allows %d connections", most)
    return msgspec.structs.replace(
        settings,
        max_connections=most,
        # The same part of them as before: one address must not be able to take them all.
        max_connections_per_address=max(
            1, settings.max_connections_per_address * most // settings.max_connections
        ),
    )


# --- one process -------------------------------------------------------------------------


def _link_code(settings: Settings) -> str | None:
    """The code of the link to the dashboard, which all processes must know."""
    return None if settings.auth else new_link_code()


def _run_alone(settings: Settings) -> int:
    link_code = _link_code(settings)
    listeners = open_listeners(settings.host, settings.port)
    port = listeners[0].getsockname()[1]
    start_peers = None
    if settings.peers or settings.peer_port:
        start_peers = functools.partial(_start_peers, settings, settings.peers)
    try:
        _run_worker(
            settings,
            listeners,
            ready=functools.partial(greet, settings, port, link_code),
            start_peers=start_peers,
            link_code=link_code,
        )
    finally:
        close_all(listeners)
    return 0


def _run_worker(
    settings: Settings,
    listeners: Sequence[socket.socket],
    *,
    ready: Callable[[], None],
    start_peers: Callable[[], Awaitable[Peers]] | None,
    run_dir: Path | None = None,
    number: int = 0,
    lifeline: int | None = None,
    link_code: str | None,
) -> None:
    def begun() -> None:
        spare_what_stays()
        keep_freed_memory()
        ready()

    async def serve() -> None:
        worker = Worker(
            settings,
            listeners,
            ready=begun,
            start_peers=start_peers,
            run_dir=run_dir,
            number=number,
            link_code=link_code,
        )
        # Signals are the process's, and the loop of its only worker handles them.
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGHUP, worker.reload)
        if lifeline is None:
            for one in (signal.SIGTERM, signal.SIGINT):
                loop.add_signal_handler(one, worker.stop_harder)
        else:
            # Ctrl+C, or a service manager, may reach every process besides the supervisor, who
            # passes it on: only its own word counts as a second one.
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            loop.add_signal_handler(signal.SIGTERM, worker.stop)
            loop.add_signal_handler(STOP_NOW, worker.stop_now)
            loop.add_reader(lifeline, _orphaned, loop, lifeline, worker)
        await worker.run()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve())


async def _start_peers(
    settings: Settings, peers: Sequence[str], sock: socket.socket | None = None
) -> Peers:
    try:
        return await Peers.start(
            settings.peer_host, settings.peer_port, peers, settings.peer_key, sock=sock
        )
    except OSError as error:
        raise _no_notices(settings, settings.peer_port, error) from None


def _no_notices(settings: Settings, port: int, error: OSError) -> SettingsError:
    return SettingsError(
        f"peer_port: cannot receive notices on {settings.peer_host} port {port}: "
        f"{error.strerror or error}"
    )


def _orphaned(loop: asyncio.AbstractEventLoop, lifeline: int, worker: Worker) -> None:
    loop.remove_reader(lifeline)
    logger.error("the supervisor is gone, so this process stops")
    worker.stop()


# --- several -----------------------------------------------------------------------------


def _run_several(settings: Settings) -> int:
    reserved = reserve_port(settings.host, settings.port)
    port = reserved[0].getsockname()[1]
    notices = [_notice_socket(settings, number) for number in range(settings.workers)]
    if not settings.peer_key and not settings.peers:
        # Only our own processes talk to each other, so nobody else needs to know it.
        settings = msgspec.structs.replace(settings, peer_key=secrets.token_hex(16))
    link_code = _link_code(settings)
    with tempfile.TemporaryDirectory(prefix="monarq-") as run_dir:
        supervisor = Supervisor(
            settings.workers,
            functools.partial(_run_child, settings, port, notices, Path(run_dir), link_code),
            functools.partial(greet, settings, port, link_code),
            stop_seconds=settings.drain_seconds + SUPERVISOR_GRACE_SECONDS,
        )
        try:
            return supervisor.run()
        finally:
            close_all(reserved)
            close_all(notices)


def _notice_socket(settings: Settings, number: int) -> socket.socket:
    """Bound before the processes start, so that each knows where the others are, also after one
    was started again."""
    port = settings.peer_port + number if settings.peer_port else 0
    if port > LAST_PORT:
        raise SettingsError(f"peer_port: {settings.workers} workers need ports up to {port}")
    family = socket.AF_INET6 if ":" in settings.peer_host else socket.AF_INET
    made = socket.socket(family, socket.SOCK_DGRAM)
    made.setblocking(False)
    try:
        made.bind((settings.peer_host.strip("[]"), port))
    except OSError as error:
        made.close()
        raise _no_notices(settings, port, error) from None
    return made


def _run_child(
    settings: Settings,
    port: int,
    notices: Sequence[socket.socket],
    run_dir: Path,
    link_code: str | None,
    number: int,
    ready: Callable[[], None],
    lifeline: int,
) -> int:
    logs.configure(settings)
    listeners = open_listeners(settings.host, port, shared=True)
    siblings = [_address(one) for one in notices if one is not notices[number]]
    peers = [*settings.peers, *siblings]
    try:
        _run_worker(
            settings,
            listeners,
            ready=ready,
            start_peers=functools.partial(_start_peers, settings, peers, notices[number]),
            run_dir=run_dir,
            number=number,
            lifeline=lifeline,
            link_code=link_code,
        )
    except MonarqError as error:
        sys.stderr.write(f"monarq: {error}\n")
        return UNUSABLE
    return 0


def _address(one: socket.socket) -> str:
    host, port = one.getsockname()[:2]
    loopback = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"[{loopback}]:{port}" if ":" in loopback else f"{loopback}:{port}"
