"""Real servers in processes of their own, for tests.

    with ServerProcess({"store": "memory:"}) as server:
        answer = server.post("/api/v1/push", {"items": [...]})
        server.kill()        # as a crash would; `start` starts it again on the same port and data
        server.start()

Also without the product: `ServerProcess` can run any command that logs where it listens.
"""

import contextlib
import http.client
import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psutil

from monarq.local_token import HEADER
from tests.torn_lines import whole_lines

START_SECONDS = 60.0
STOP_SECONDS = 60.0


class ServerError(Exception):
    """The server did not do as told; the message ends with its log."""


class Answer:
    def __init__(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        self.status = status
        self.headers = headers
        self.body = body

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    def __repr__(self) -> str:
        return f"{self.status} {self.body[:500]!r}"


class ServerProcess:
    """`monarq serve` with these settings, on a free port, started at once.

    `settings` are named as in `Settings`. `arguments` go behind them, `environment` is added to
    ours. Its log is JSON and is kept in `log`.
    """

    def __init__(
        self,
        settings: Mapping[str, Any] | None = None,
        *,
        arguments: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        command: Sequence[str] = (sys.executable, "-m", "monarq", "serve"),
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.settings = {"port": 0, "log_format": "json", **(settings or {})}
        self._arguments = arguments
        self._environment = {
            name: value for name, value in os.environ.items() if not name.startswith("MONARQ_")
        } | dict(environment or {})
        self._command = command
        self._tls = tls
        self.process: subprocess.Popen[bytes] | None = None
        self.url = ""
        self.host = "127.0.0.1"
        self.port = 0
        self.log: list[dict[str, Any]] = []
        self._listening = threading.Event()
        self._reader: threading.Thread | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.end()

    # --- its life --------------------------------------------------------------------------

    def launch(self) -> None:
        """Start without waiting for it."""
        self.end()
        self._listening.clear()
        settings = self.settings | ({"port": self.port} if self.port else {})
        self.process = subprocess.Popen(
            [*self._command, *_flags(settings), *self._arguments],
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        self._reader = threading.Thread(target=self._read_log, args=(self.process,), daemon=True)
        self._reader.start()

    def start(self) -> None:
        """Start it, again on the same port, and wait until it listens."""
        self.launch()
        self.wait_until_listening()

    def wait_until_listening(self) -> None:
        deadline = time.monotonic() + START_SECONDS
        while not self._listening.wait(0.05):
            assert self.process is not None
            if self.process.poll() is not None:
                self._join_reader()
                raise ServerError(f"it ended with {self.process.returncode}\n{self.log_text}")
            if time.monotonic() > deadline:
                self.end()
                raise ServerError(f"it does not listen\n{self.log_text}")

    def signal(self, number: int = signal.SIGTERM) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def wait(self, seconds: float = STOP_SECONDS) -> int:
        """Wait for its end; returns the exit code."""
        assert self.process is not None
        try:
            code = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.end()
            raise ServerError(f"it did not end in {seconds:g} s\n{self.log_text}") from None
        self._join_reader()
        return code

    def stop(self) -> int:
        """Ask it to end, and wait."""
        self.signal()
        return self.wait()

    def kill(self) -> None:
        """As a crash would."""
        assert self.process is not None
        for one in self.processes():
            with contextlib.suppress(psutil.NoSuchProcess):
                one.kill()
        self.process.wait(STOP_SECONDS)
        self._join_reader()

    def end(self) -> None:
        """Whatever state it is in."""
        if self.process is None:
            return
        if self.process.poll() is None:
            self.kill()
        assert self.process.stderr is not None
        self._join_reader()
        self.process.stderr.close()

    def processes(self) -> list[psutil.Process]:
        """It and its children."""
        assert self.process is not None
        try:
            own = psutil.Process(self.process.pid)
            return [*own.children(recursive=True), own]
        except psutil.NoSuchProcess:
            return []

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    @property
    def memory_bytes(self) -> int:
        return sum(one.memory_info().rss for one in self.processes())

    # --- its log ---------------------------------------------------------------------------

    def _read_log(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stderr is not None
        for line in whole_lines(process.stderr):
            try:
                entry = json.loads(line)
            except ValueError:
                entry = {"message": line.decode(errors="replace").rstrip()}
            self.log.append(entry)
            if entry.get("message") == "listening":
                self.url = entry["url"]
                self.port = entry["port"]
                self._listening.set()

    def _join_reader(self) -> None:
        if self._reader is not None:
            self._reader.join(STOP_SECONDS)

    @property
    def log_text(self) -> str:
        return "\n".join(json.dumps(entry) for entry in self.log[-50:])

    def wait_for_log(self, message: str, count: int = 1, seconds: float = 30.0) -> dict[str, Any]:
        """Wait until it has logged this message so often."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            found = [entry for entry in self.log if message in str(entry.get("message"))]
            if len(found) >= count:
                return found[count - 1]
            time.sleep(0.01)
        raise ServerError(f"never logged {message!r}\n{self.log_text}")

    # --- talking to it ---------------------------------------------------------------------

    def request(
        self,
        method: str,
        target: str,
        body: Any = None,
        *,
        headers: Mapping[str, str] | None = None,
        timeout: float = 60.0,
    ) -> Answer:
        """One request on a connection of its own. A body that is not bytes is sent as JSON."""
        sent = self.local_proof() | dict(headers or {})
        if body is not None and not isinstance(body, bytes):
            body = json.dumps(body).encode()
        if body is not None:
            sent.setdefault("Content-Type", "application/json")
        connection: http.client.HTTPConnection
        if self._tls is not None:
            connection = http.client.HTTPSConnection(
                self.host, self.port, timeout=timeout, context=self._tls
            )
        else:
            connection = http.client.HTTPConnection(self.host, self.port, timeout=timeout)
        with contextlib.closing(connection):
            connection.request(method, target, body, sent)
            answer = connection.getresponse()
            names = {name.lower(): value for name, value in answer.getheaders()}
            return Answer(answer.status, names, answer.read())

    def local_proof(self) -> dict[str, str]:
        """The header by which clients of the same user prove it, unless callers authenticate."""
        # Not set where this is used outside the tests, as for screenshots.
        share = self._environment.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
        file = Path(share) / "monarq" / "local-token"
        if self.settings.get("auth") or not file.exists():
            return {}
        return {HEADER: file.read_text()}

    def get(self, target: str, **options: Any) -> Answer:
        return self.request("GET", target, **options)

    def post(self, target: str, body: Any = None, **options: Any) -> Answer:
        return self.request("POST", target, body, **options)

    def delete(self, target: str, **options: Any) -> Answer:
        return self.request("DELETE", target, **options)

    @contextlib.contextmanager
    def connect(self, timeout: float = 30.0) -> Iterator[socket.socket]:
        """A bare connection."""
        with socket.create_connection((self.host, self.port), timeout=timeout) as made:
            yield made


def _flags(settings: Mapping[str, Any]) -> list[str]:
    flags: list[str] = []
    for name, value in settings.items():
        flag = "--" + name.replace("_", "-")
        if isinstance(value, bool):
            flags.append(flag if value else "--no-" + flag[2:])
        elif isinstance(value, list):
            for one in value:
                flags += [flag, str(one)]
        else:
            flags += [flag, str(value)]
    return flags


def sqlite_settings(directory: Path) -> dict[str, Any]:
    """A SQLite file, and everything else, under `directory`."""
    return {"data_dir": str(directory), "store": f"sqlite:///{directory / 'monarq.db'}"}
