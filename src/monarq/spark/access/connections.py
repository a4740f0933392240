"""Requests to a broker and their answers as streams, by the standard library alone.

Connections are kept for the next request. One that found no broker, or one that cannot serve, is
repeated within bounds; an answer that broke off is not: who reads it is told.
"""

from __future__ import annotations

import http.client
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

from monarq.client.http_errors import refusal_of
from monarq.errors import InvalidRequestError, MonarqError, StoreUnavailableError

_TIMEOUT_SECONDS = 60.0
_TRIES = 6
_PAUSE_SECONDS = 0.1
_LONGEST_PAUSE_SECONDS = 2.0


class Connections:
    """To one broker. May be used from any thread; a thread has a connection for itself."""

    def __init__(self, url: str, token: str | None) -> None:
        parts = urlsplit(url)
        if not parts.hostname or parts.query or parts.fragment:
            raise InvalidRequestError(f"{url!r} is not the address of a broker: http://host:port")
        try:
            self._port = parts.port
        except ValueError:
            raise InvalidRequestError(f"{url!r} has no port that could be") from None
        self._is_secure = parts.scheme == "https"
        self._host = parts.hostname
        self._prefix = parts.path.rstrip("/")
        self.url = url.rstrip("/")
        self._headers = {"Content-Type": "application/json"}
        if token is not None:
            self._headers["Authorization"] = f"Bearer {token}"
        self._idle: list[http.client.HTTPConnection] = []
        self._lock = threading.Lock()
        self.is_closed = False

    def close(self) -> None:
        with self._lock:
            self.is_closed = True
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def call(self, method: str, target: str, body: bytes | None = None) -> bytes:
        with self.stream(method, target, body) as response:
            return response.read()

    @contextmanager
    def stream(
        self, method: str, target: str, body: bytes | None = None
    ) -> Iterator[http.client.HTTPResponse]:
        """A good answer, to be read inside the block."""
        connection, response = self._asked(method, target, body)
        is_whole = False
        try:
            yield response
            # What ends the answer must be read too, or the next one begins with it.
            is_whole = not response.read(1)
        except (http.client.HTTPException, OSError) as error:
            raise StoreUnavailableError(
                f"the answer from {self.url} broke off: {_words(error)}"
            ) from error
        finally:
            if is_whole and not response.will_close:
                self._keep(connection)
            else:
                connection.close()

    def _asked(
        self, method: str, target: str, body: bytes | None
    ) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
        pause = _PAUSE_SECONDS
        for left in range(_TRIES - 1, -1, -1):
            connection = self._taken()
            error: MonarqError
            try:
                connection.request(method, self._prefix + target, body, self._headers)
                response = connection.getresponse()
                if response.status < 300:
                    return connection, response
                error = refusal_of(response.status, response.read(), self.url + target)
                is_final = response.status != 503
            except (http.client.HTTPException, OSError) as failure:
                error = StoreUnavailableError(f"no answer from {self.url}: {_words(failure)}")
                is_final = isinstance(failure, ssl.SSLError)
            except BaseException:
                connection.close()
                raise
            connection.close()
            if is_final or not left:
                raise error
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)
        raise AssertionError("the loop above returns or raises")

    def _taken(self) -> http.client.HTTPConnection:
        with self._lock:
            if self.is_closed:
                raise StoreUnavailableError(f"the way to {self.url} is closed")
            if self._idle:
                return self._idle.pop()
        if self._is_secure:
            return http.client.HTTPSConnection(self._host, self._port, timeout=_TIMEOUT_SECONDS)
        return http.client.HTTPConnection(self._host, self._port, timeout=_TIMEOUT_SECONDS)

    def _keep(self, connection: http.client.HTTPConnection) -> None:
        with self._lock:
            if not self.is_closed:
                self._idle.append(connection)
                return
        connection.close()


def _words(error: BaseException) -> str:
    return str(error) or type(error).__name__
