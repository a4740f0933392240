"""Pushes to a broker over connections that are kept alive, a bounded number of them at a time.

A request that nobody answered, or that the broker cannot take now, is repeated within a bound:
transaction ids make that safe. The next one of a lane is sent while the one before is under way.
Where both go to one partition it names the one before, by its mark: the broker stores it after that
one, or not at all, and then it is repeated when that one was taken. Knows nothing of rows.
"""

from __future__ import annotations

import contextlib
import http.client
import itertools
import queue
import random
import secrets
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
    ConflictError,
    ForbiddenError,
    InternalError,
    InvalidRequestError,
    MonarqError,
    NotFoundError,
    QueueFullError,
    StoreUnavailableError,
    UnauthorizedError,
)
from monarq.model import QueueKind
from monarq.spark.sink_requests import Body, PushRequest
from monarq.wire.push import PushedCounts

_CONNECT_SECONDS = 10.0
_ANSWER_SECONDS = 120.0
_FIRST_PAUSE_SECONDS = 0.1
_LONGEST_PAUSE_SECONDS = 2.0
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
        self._is_sent = False
        """Whether a request was sent, but not answered."""
        self._headers = {"Content-Type": "application/json"}
        if token is not None:
            self._headers["Authorization"] = f"Bearer {token}"

    def close(self) -> None:
        self._is_sent = False
        self._made.close()

    def send(self, method: str, path: str, body: Body) -> None:
        """Send a request. If that fails, `answer` tells."""
        with contextlib.suppress(StoreUnavailableError):
            self._send(method, path, body)

    def answer(self) -> bytes:
        """The body of a good answer to what was sent."""
        if not self._is_sent:
            raise StoreUnavailableError(f"{self._url} took no request")
        with self._reached():
            answer = self._made.getresponse()
            content = answer.read()
        self._is_sent = False
        if answer.status < 300:
            return content
        raise _refusal(answer.status, content, self._url)

    def call(
        self, method: str, path: str, body: Body = (), gone: threading.Event | None = None
    ) -> bytes:
        """Send and wait for a good answer. `gone` ends the repeats: nobody waits any more."""
        deadline = time.monotonic() + self._retry_seconds
        pause, ended = _FIRST_PAUSE_SECONDS, gone or threading.Event()
        while True:
            try:
                self._send(method, path, body)
                return self.answer()
            except (StoreUnavailableError, InternalError, QueueFullError):
                left = deadline - time.monotonic()
                if left <= 0 or ended.wait(min(pause * random.uniform(0.5, 1.0), left)):
                    raise
                pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)

    def _connect(self) -> None:
        self._made.connect()
        self._made.sock.settimeout(_ANSWER_SECONDS)

    def _send(self, method: str, path: str, body: Body) -> None:
        with self._reached():
            if self._made.sock is None:
                self._connect()
            length = {"Content-Length": str(sum(map(len, body)))}
            self._made.request(method, self._path + path, body, self._headers | length)
            self._is_sent = True

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


class _Sent(Struct, frozen=True):
    """A push that is under way."""

    connection: BrokerConnection
    request: PushRequest
    mark: str

    def meets(self, other: PushRequest) -> bool:
        """Whether both go to a partition, in which their order counts."""
        return not self.request.places.isdisjoint(other.places)


class BrokerLanes:
    """Sends pushes. What goes to one partition by one lane is stored in its order."""

    def __init__(self, url: str, token: str | None, lanes: int, retry_seconds: float) -> None:
        self.written = Written()
        self._error: BaseException | None = None
        self._gone = threading.Event()
        self._lock = threading.Lock()
        self._inboxes: list[queue.Queue[PushRequest | None]] = [
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

    def send(self, lane: int, request: PushRequest) -> None:
        """Waits for its turn; raises what an earlier one met."""
        # A lane that has failed goes on emptying its inbox, so this always comes to an end.
        self._inboxes[lane].put(request)
        if self._error is not None:
            raise self._error

    def _run(
        self,
        inbox: queue.Queue[PushRequest | None],
        connections: Sequence[BrokerConnection],
    ) -> None:
        turns = zip(_marks(), itertools.cycle(connections), strict=False)
        before: _Sent | None = None
        try:
            while (request := inbox.get()) is not None:
                if self._gone.is_set():
                    continue
                mark, connection = next(turns)
                after = before.mark if before is not None and before.meets(request) else None
                connection.send("POST", request.path, request.chained(mark, after))
                if before is not None:
                    self._finish(before)
                before = _Sent(connection, request, mark)
            if before is not None and not self._gone.is_set():
                self._finish(before)
        finally:
            for connection in connections:
                connection.close()

    def _finish(self, sent: _Sent) -> None:
        """Take the answer, and repeat the push while there is none."""
        count = sent.request.count
        try:
            answer = _counts.decode(self._answer(sent))
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

    def _answer(self, sent: _Sent) -> bytes:
        try:
            return sent.connection.answer()
        except (StoreUnavailableError, InternalError, QueueFullError, ConflictError):
            # The one before is taken by now, so this one need not name it.
            request = sent.request
            return sent.connection.call("POST", request.path, request.body, self._gone)


def _marks() -> Iterator[str]:
    """Names for pushes that nobody else has."""
    sender = secrets.token_hex(12)
    return (f"{sender}-{number}" for number in itertools.count())
