"""The processes of a chaos run: brokers (`monarq serve`) and the PostgreSQL that they share."""

import asyncio
import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tests.chaos.calls import Connection, NoAnswerError
from tests.postgres_server import NEWEST, PostgresServer

PROJECT = Path(__file__).parents[2]
READY_SECONDS = 60
DISK_BYTES = 8 << 20


class Broker:
    """One `monarq serve`, with a data directory of its own."""

    def __init__(self, name: str, directory: Path, store: str, options: Sequence[str]) -> None:
        self.name = name
        self.port = free_port(socket.SOCK_STREAM)
        self.data = directory / f"{name}-data"
        self.data.mkdir()
        self._log = directory / f"{name}.out"
        self._options = [*options, *(("--store", store) if store else ())]
        self._process: subprocess.Popen[bytes] | None = None
        self._is_mounted = False

    @property
    def log(self) -> str:
        return self._log.read_text(errors="replace") if self._log.exists() else ""

    def give_small_disk(self) -> bool:
        """Put the data on a file system of a few megabytes, where we may mount one."""
        command = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(self.data)]
        self._is_mounted = os.geteuid() == 0 and subprocess.run(command).returncode == 0
        return self._is_mounted

    @property
    def has_small_disk(self) -> bool:
        return self._is_mounted

    def fill_disk(self) -> None:
        free = shutil.disk_usage(self.data).free
        with contextlib.suppress(OSError):  # somebody else may take the last bytes
            (self.data / "ballast").write_bytes(b"x" * max(0, free - 65_536))

    def free_disk(self) -> None:
        (self.data / "ballast").unlink(missing_ok=True)

    async def start(self) -> None:
        """Returns when it answers, be it that it has no store."""
        self._process = self._launch()
        connection = Connection(self.port, timeout_seconds=5)
        deadline = time.monotonic() + READY_SECONDS
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                break
            with contextlib.suppress(NoAnswerError):
                await connection.call("GET", "/health")
                connection.close()
                return
            await asyncio.sleep(0.05)
        raise RuntimeError(f"{self.name} did not start\n{self.log[-4000:]}")

    def _launch(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "monarq", "serve", "--port", str(self.port)]
        with self._log.open("ab") as log:
            return subprocess.Popen(
                [*command, "--data-dir", str(self.data), *self._options],
                cwd=PROJECT,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, "MONARQ_LOG_FORMAT": "text"},
            )

    def signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    async def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            await asyncio.to_thread(self._process.wait)

    async def terminate(self) -> int:
        """Ask it to end, and wait for that; its exit code."""
        assert self._process is not None
        self._process.terminate()
        return await asyncio.to_thread(self._process.wait, 60)

    async def remove(self) -> None:
        await self.kill()
        if self._is_mounted:
            await asyncio.to_thread(subprocess.run, ["umount", "--lazy", str(self.data)])


class Cluster:
    """Two brokers on one PostgreSQL, or one on a SQLite file."""

    def __init__(self, directory: Path, *, is_postgres: bool, options: Sequence[str]) -> None:
        self.postgres = PostgresServer(NEWEST, durable=True) if is_postgres else None
        store = self.postgres.dsn if self.postgres else ""
        names = ("first", "second") if is_postgres else ("only",)
        ports = [free_port(socket.SOCK_DGRAM) for _ in names]
        self.brokers = [
            Broker(
                name,
                directory,
                store,
                [*options, *(_peer_options(ports, index) if is_postgres else ())],
            )
            for index, name in enumerate(names)
        ]

    async def start(self) -> None:
        if self.postgres is not None:
            await asyncio.to_thread(self.postgres.start)
            self.brokers[0].give_small_disk()
        for broker in self.brokers:
            await broker.start()

    async def stop(self) -> None:
        for broker in self.brokers:
            await broker.remove()
        if self.postgres is not None:
            await asyncio.to_thread(self.postgres.remove)


def _peer_options(ports: Sequence[int], mine: int) -> list[str]:
    others = ",".join(f"127.0.0.1:{port}" for port in ports if port != ports[mine])
    return ["--peer-port", str(ports[mine]), "--peers", others, "--peer-key", "chaos"]


def free_port(kind: socket.SocketKind) -> int:
    with socket.socket(socket.AF_INET, kind) as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])
