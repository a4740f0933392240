"""Pushes to a broker over connections that are kept alive, a bounded number of them at a time.

A request that nobody answered, or that the broker cannot take now, is repeated within a bound:
transaction ids make that safe. What goes to one lane is carried out one after the other, but the
next one is sent ahead while the broker works, all of it but its end: the broker cannot begin with
it before it is known what became of the one before. Knows nothing of rows.
"""

from __future__ import annotations

import contextlib
import http.client
import itertools
import queue
import random
import threading
import time
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote, urlsplit

import msgspec
from msgspec import Struct

from monarq.client.http_errors import from_code
from monarq.errors import (
    ForbiddenError,
    InvalidRequestError,
    MonarqError,
    NotFoundError,
    QueueFullError,
    StoreUnavailableError,
    UnauthorizedError,
)
from monarq.model import QueueKind
from monarq.spark.sink_requests import Body
from monarq.wire.push import PushedCounts

_CONNECT_SECONDS = 10.0
_ANSWER_SECONDS = 120.0
_FIRST_PAUSE_SECONDS = 0.1
_LONGEST_PAUSE_SECONDS = 2.0
_PUSH = "/api/v1/push"
_BY_STATUS: dict[int, type[MonarqError]] = {
    401: UnauthorizedError,
    403: ForbiddenError,
    404: NotFoundError,
}


_counts = msgspec.json.Decoder(PushedCounts)


class Written(Struct):
    """What became of the rows of a task."""

    rows: int = 0
    duplicates: int = 0


class BrokerConnection:
    """One connection, made when it is needed and made again when it is lost."""

    def __init__(self, url: str, token: str | None, retry_seconds: float) -> None:
        parts = urlsplit(url)
        if not parts.hostname:
            raise InvalidRequestError("option 'url' names no host")
        self._url = url
        self._path = parts.path.rstrip("/")
        kind = (
            http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        )
        self._made = kind(parts.hostname, parts.port, timeout=_CONNECT_SECONDS)
        self._retry_seconds = retry_seconds
        self._is_ahead = False
        """Whether a request was sent, but not answered."""
        self._headers = {"Content-Type": "application/json"}
        if token is not None:
            self._headers["Authorization"] = f"Bearer {token}"

    def close(self) -> None:
        self._is_ahead = False
        self._made.close()

    def send_ahead(self, method: str, path: str, body: Body) -> None:
        """Send a request but its end. If that fails, `call` sends it again."""
        with contextlib.suppress(StoreUnavailableError):
            self._send(method, path, body, body[:-1])
            self._is_ahead = True

    def send_end(self, body: Body) -> None:
        """The rest of what was sent ahead: now the broker may begin."""
        if self._is_ahead:
            try:
                self._made.send(body[-1])
            except OSError:
                self.close()

    def call(
        self, method: str, path: str, body: Body = (), gone: threading.Event | None = None
    ) -> bytes:
        """The body of a good answer, also to what was sent ahead and ended. `gone` ends the
        repeats: nobody waits any more."""
        deadline = time.monotonic() + self._retry_seconds
        pause, ended = _FIRST_PAUSE_SECONDS, gone or threading.Event()
        while True:
            try:
                return self._once(method, path, body)
            except (StoreUnavailableError, QueueFullError):
                left = deadline - time.monotonic()
                if left <= 0 or ended.wait(min(pause * random.uniform(0.5, 1.0), left)):
                    raise
                pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)

    def _connect(self) -> None:
        self._made.connect()
        self._made.sock.settimeout(_ANSWER_SECONDS)

    def _send(self, method: str, path: str, body: Body, pieces: Body) -> None:
        """The head of a request with this body, and some of its pieces."""
        with self._reached():
            if self._made.sock is None:
                self._connect()
            length = {"Content-Length": str(sum(map(len, body)))}
            self._made.request(method, self._path + path, pieces, self._headers | length)

    def _once(self, method: str, path: str, body: Body) -> bytes:
        if not self._is_ahead:
            self._send(method, path, body, body)
        with self._reached():
            answer = self._made.getresponse()
            content = answer.read()
        self._is_ahead = False
        if answer.status < 300:
            return content
        raise _refusal(answer.status, content, self._url)

    @contextlib.contextmanager
    def _reached(self) -> Iterator[None]:
        try:
            yield
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise StoreUnavailableError(
                f"no answer from {self._url}: {type(error).__name__} {error}".rstrip()
            ) from None


def _refusal(status: int, content: bytes, url: str) -> MonarqError:
    try:
        body: Any = msgspec.json.decode(content)
        code, text = str(body["code"]), str(body["error"])
    except (msgspec.DecodeError, TypeError, KeyError):
        kind = StoreUnavailableError if status >= 500 else _BY_STATUS.get(status, MonarqError)
        return kind(f"HTTP {status} from {url}")
    if status in (408, 503):
        return StoreUnavailableError(text)
    return from_code(code, text)


def queue_kind(url: str, token: str | None, name: str, retry_seconds: float) -> QueueKind | None:
    """None if there is no such queue yet."""
    connection = BrokerConnection(url, token, retry_seconds)
    try:
        answer = connection.call("GET", f"/api/v1/resources/queues/{quote(name, safe='')}")
    except NotFoundError:
        return None
    finally:
        connection.close()
    return QueueKind(msgspec.json.decode(answer)["kind"])


class BrokerLanes:
    """Sends bodies of pushes. What goes to one lane goes in its order, one after the other."""

    def __init__(self, url: str, token: str | None, lanes: int, retry_seconds: float) -> None:
        self.written = Written()
        self._error: BaseException | None = None
        self._gone = threading.Event()
        self._lock = threading.Lock()
        self._inboxes: list[queue.Queue[tuple[int, Body] | None]] = [
            queue.Queue(1) for _ in range(lanes)
        ]
        self._threads = [
            threading.Thread(
                target=self._run,
                args=(inbox, [BrokerConnection(url, token, retry_seconds) for _ in range(2)]),
                name="monarq-sink",
                daemon=True,
            )
            for inbox in self._inboxes
        ]
        for thread in self._threads:
            thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None:
            self._gone.set()
        for inbox in self._inboxes:
            inbox.put(None)
        for thread in self._threads:
            thread.join()
        if error is None and self._error is not None:
            raise self._error

    def send(self, lane: int, count: int, body: Body) -> None:
        """Waits for its turn; raises what an earlier one met."""
        # A lane that has failed goes on emptying its inbox, so this always comes to an end.
        self._inboxes[lane].put((count, body))
        if self._error is not None:
            raise self._error

    def _run(
        self,
        inbox: queue.Queue[tuple[int, Body] | None],
        connections: Sequence[BrokerConnection],
    ) -> None:
        turns = itertools.cycle(connections)
        before: tuple[BrokerConnection, int, Body] | None = None
        try:
            while (what := inbox.get()) is not None:
                if self._gone.is_set():
                    continue
                connection, (count, body) = next(turns), what
                connection.send_ahead("POST", _PUSH, body)
                if before is not None:
                    self._finish(*before)
                if not self._gone.is_set():
                    connection.send_end(body)
                before = connection, count, body
            if before is not None and not self._gone.is_set():
                self._finish(*before)
        finally:
            for connection in connections:
                connection.close()

    def _finish(self, connection: BrokerConnection, count: int, body: Body) -> None:
        """Take the answer, and repeat the push while there is none."""
        try:
            answer = _counts.decode(connection.call("POST", _PUSH, body, self._gone))
            good = answer.queued + answer.duplicate + answer.buffered
            if good != count:
                raise MonarqError(f"the broker took {good} of {count} messages of a push")
        except (MonarqError, msgspec.DecodeError) as error:
            with self._lock:
                self._error = self._error or error
            self._gone.set()
            return
        with self._lock:
            self.written.rows += count
            self.written.duplicates += answer.duplicate
