"""One connection: reads requests, hands them to the application one at a time and in order, and
writes the answers.

It frames requests itself and leaves the head's fields to `head.py`: a request that comes whole,
with a head that is known, costs a search and a look-up. It makes no task for an answer that is
there or pending, and no timer for any.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any, cast

from monarq.server.answers import HttpError, error_answer, refusal
from monarq.server.exchange import JSON, Answer, Pending, Response, StreamingResponse
from monarq.server.http.chunked import ChunkedBody
from monarq.server.http.endpoint import Endpoint
from monarq.server.http.head import CHUNKED, Head, check_incomplete
from monarq.server.http.streaming import stream
from monarq.server.http.writing import CONTINUE, EMPTY, PLAIN, compose_head

logger = logging.getLogger("monarq.server.http")

# The phases of a connection. From BUSY on, what comes in waits.
IDLE = 0
"""Between two requests, with nothing of the next one there."""
HEAD = 1
BODY = 2
BUSY = 3
"""The application has the request, or is streaming its answer."""
FLUSHING = 4
"""The answer is made, but the client does not take it fast enough."""
LINGERING = 5
"""Refused; what the client still sends is thrown away, so that it reads the answer."""
CLOSED = 6

_LARGE = 32 << 10
"""A body from here on is not copied behind its head, but written as it is."""


class Connection(asyncio.Protocol):
    __slots__ = (
        "_body",
        "_chunks",
        "_endpoint",
        "_head",
        "_held",
        "_left",
        "_peer",
        "_pending",
        "_phase",
        "_reading",
        "_room",
        "_since",
        "_task",
        "_transport",
        "_unsent",
        "_unwritten",
        "_writable",
        "looked_at",
    )

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._phase = IDLE
        self._since = 0.0
        """When the phase began, or something last moved in it."""
        self._head: Head | None = None
        self._held = bytearray()
        """What came in and was not yet looked at, or is part of a head."""
        self._body: bytearray | None = None
        self._left = 0
        """What is to come of the body."""
        self._chunks: ChunkedBody | None = None
        self._pending: Pending[Any] | None = None
        self._task: asyncio.Task[Any] | None = None
        self._unsent: tuple[Pending[Any], Any] | None = None
        """What was answered last, while part of it is still here."""
        self._reading = True
        self._writable = True
        self._room: asyncio.Future[None] | None = None
        self._unwritten = 0
        self._peer = ""
        self.looked_at = 0

    # --- from the transport --------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        endpoint = self._endpoint
        peer = transport.get_extra_info("peername")
        self._peer = peer[0] if isinstance(peer, tuple) else ""
        full = endpoint.is_full()
        endpoint.opened(self)
        self._since = endpoint.loop.time()
        if full or endpoint.draining:
            endpoint.counters.turned_away += 1
            message = "there are too many connections already"
            if endpoint.draining:
                message = "the server is shutting down, try another connection"
            self._refuse(HttpError(503, "overloaded", message, ((b"Retry-After", b"1"),)))
            return
        endpoint.deadlines.watch(self, self._since + endpoint.limits.head_seconds)

    def data_received(self, data: bytes) -> None:
        phase = self._phase
        if phase == IDLE:
            self._read(data)
        elif phase == HEAD:
            self._read_on(data)
        elif phase == BODY:
            self._since = self._endpoint.loop.time()
            self._read_body(data)
        elif phase < LINGERING:
            self._held += data
            if self._reading and len(self._held) > self._endpoint.limits.read_ahead_bytes:
                self._reading = False
                self._transport.pause_reading()

    def eof_received(self) -> bool | None:
        # A client that has closed looks just like this. Nobody waits for an answer without
        # reading it, so the connection is closed, and with it what was under way.
        return None

    def connection_lost(self, error: Exception | None) -> None:
        phase = self._phase
        self._phase = CLOSED
        self.looked_at = -1
        endpoint = self._endpoint
        endpoint.closed(self)
        self._end_body()
        self._held.clear()
        if phase == BUSY:
            endpoint.counters.abandoned += 1
        if self._pending is not None:
            # If its result is there already, `_resolved` is still to be called, and sees to it.
            self._pending.future.cancel()
        if self._task is not None:
            self._task.cancel()
        if self._room is not None and not self._room.done():
            self._room.cancel()
        if self._unsent is not None:
            # Part of the answer never left, so nobody has read it whole.
            pending, result = self._unsent
            self._unsent = None
            _give_back(pending, result)

    def pause_writing(self) -> None:
        self._writable = False
        self._unwritten = 0
        endpoint = self._endpoint
        endpoint.deadlines.watch(self, endpoint.loop.time() + endpoint.limits.write_seconds / 4)

    def resume_writing(self) -> None:
        self._writable = True
        self._unsent = None
        if self._room is not None and not self._room.done():
            self._room.set_result(None)
        if self._phase == FLUSHING:
            self._phase = IDLE
            if self._endpoint.draining:
                self.finish()
            else:
                self._next()

    # --- reading ---------------------------------------------------------------------------

    def _read(self, data: bytes) -> None:
        """Take the requests in `data` one after the other, until one is incomplete or has to
        wait. The connection is idle."""
        endpoint = self._endpoint
        known = endpoint.heads.known
        at = 0
        size = len(data)
        while at < size:
            end = data.find(b"\r\n\r\n", at) + 4
            if end < 4:
                self._begin_head(data[at:] if at else data)
                return
            raw = data[at:end]
            head = known.get(raw)
            if head is None:
                if raw.startswith(b"\r\n"):
                    # Some clients end a body with an empty line that is not part of it.
                    at += 2
                    continue
                try:
                    head = endpoint.heads.read(raw)
                except HttpError as error:
                    self._refuse(error)
                    return
            length = head.length
            at = end + length
            if length < 0 or at > size:
                self._begin_body(head, data[end:])
                return
            self._run(head, data[end:at] if length else b"")
            if self._phase != IDLE:
                if at < size and self._phase < LINGERING:
                    self._held += data[at:]
                return

    def _begin_head(self, data: bytes) -> None:
        while data.startswith(b"\r\n"):
            data = data[2:]
        if not data:
            return
        self._phase = HEAD
        endpoint = self._endpoint
        self._since = endpoint.loop.time()
        endpoint.deadlines.watch(self, self._since + endpoint.limits.head_seconds)
        self._held += data
        self._check_head(0)

    def _read_on(self, data: bytes) -> None:
        """Of a head of which a part is there."""
        held = self._held
        before = len(held)
        held += data
        if held.find(b"\r\n\r\n", max(before - 3, 0)) >= 0:
            whole = bytes(held)
            held.clear()
            self._phase = IDLE
            self._read(whole)
        else:
            self._check_head(before)

    def _check_head(self, start: int) -> None:
        try:
            check_incomplete(self._held, start, self._endpoint.limits)
        except HttpError as error:
            self._refuse(error)

    def _begin_body(self, head: Head, data: bytes) -> None:
        self._phase = BODY
        self._head = head
        endpoint = self._endpoint
        self._since = endpoint.loop.time()
        endpoint.deadlines.watch(self, self._since + endpoint.limits.body_seconds)
        if head.length == CHUNKED:
            self._chunks = ChunkedBody(endpoint.limits.body_bytes)
        else:
            self._left = head.length
        self._body = bytearray()
        if head.expects and not data:
            self._transport.write(CONTINUE)
        if data:
            self._read_body(data)

    def _read_body(self, data: bytes) -> None:
        chunks = self._chunks
        body = self._body
        if chunks is not None:
            body = chunks.content
            before = len(body)
            try:
                taken = chunks.feed(data)
            except HttpError as error:
                self._refuse(error)
                return
            grown = len(body) - before
            is_whole = chunks.done
        else:
            assert body is not None
            taken = grown = min(self._left, len(data))
            body += data if taken == len(data) else data[:taken]
            self._left -= taken
            is_whole = not self._left
        self._body = body
        endpoint = self._endpoint
        endpoint.incoming_bytes += grown
        if is_whole:
            head = self._head
            assert head is not None
            whole = bytes(body)
            self._end_body()
            self._run(head, whole)
            if taken < len(data) and self._phase < LINGERING:
                self._held += data[taken:]
            if self._phase == IDLE:
                self._next()
        elif endpoint.incoming_bytes > endpoint.limits.bodies_bytes:
            message = "too many requests are coming in on too many connections; try again"
            self._refuse(HttpError(503, "overloaded", message, ((b"Retry-After", b"1"),)))

    def _end_body(self) -> None:
        if self._body is not None:
            self._endpoint.incoming_bytes -= len(self._body)
            self._body = None
            self._chunks = None

    def _next(self) -> None:
        """Go on reading after an answer. The connection is idle."""
        held = self._held
        if held:
            data = bytes(held)
            held.clear()
            self._read(data)
        if not self._reading and len(held) <= self._endpoint.limits.read_ahead_bytes:
            if self._phase < LINGERING:
                self._reading = True
                self._transport.resume_reading()

    # --- answering -------------------------------------------------------------------------

    def _run(self, head: Head, body: bytes) -> None:
        self._phase = BUSY
        self._head = head
        endpoint = self._endpoint
        endpoint.counters.requests += 1
        try:
            handled = endpoint.application.handle(
                head.method, head.target, head.headers, body, self._peer
            )
        except Exception as error:  # noqa: BLE001 - whatever it is, the client gets an answer
            self._answer(error_answer(error))
            return
        if type(handled) is Response:
            self._answer(handled)
        elif type(handled) is Pending:
            self._pending = handled
            handled.future.add_done_callback(self._resolved)
        elif isinstance(handled, StreamingResponse):
            self._start(stream(self, handled))
        else:
            self._start(self._finish_task(handled))

    def _resolved(self, future: asyncio.Future[Any]) -> None:
        pending = self._pending
        assert pending is not None
        self._pending = None
        if self._phase == CLOSED or self._transport.is_closing():
            if not future.cancelled() and future.exception() is None:
                _give_back(pending, future.result())
            return
        self._answer(_response(pending, future))
        if not self._writable and not future.cancelled() and future.exception() is None:
            self._unsent = (pending, future.result())
        if self._phase == IDLE:
            self._next()

    def _start(self, coroutine: Any) -> None:
        self._task = self._endpoint.loop.create_task(coroutine)

    async def _finish_task(self, coroutine: Any) -> None:
        try:
            answer: Answer = await coroutine
        except Exception as error:  # noqa: BLE001 - whatever it is, the client gets an answer
            answer = error_answer(error)
        if isinstance(answer, StreamingResponse):
            await stream(self, answer)
            return
        self._task = None
        if self._phase == CLOSED or self._transport.is_closing():
            return
        self._answer(answer)
        if self._phase == IDLE:
            self._next()

    def _answer(self, response: Response) -> None:
        """Write a whole answer; the connection is then idle, flushing or lingering."""
        head = self._head
        endpoint = self._endpoint
        now = endpoint.loop.time()
        dates = endpoint.dates
        if now >= dates.until:
            dates.refresh(now)
        body = response.body
        if (
            head is not None
            and head.is_plain
            and not response.headers
            and response.content_type is JSON
            and not endpoint.draining
        ):
            if response.status == 204:
                self._transport.write(EMPTY + dates.tail)
            elif len(body) < _LARGE:
                self._transport.write(
                    b"%b%d%b%b" % (PLAIN[response.status], len(body), dates.tail, body)
                )
            else:
                start = b"%b%d%b" % (PLAIN[response.status], len(body), dates.tail)
                self._transport.writelines((start, body))
        else:
            self._answer_otherwise(response, dates.tail)
            if self._phase >= LINGERING:
                return
        self._since = now
        self._phase = IDLE if self._writable else FLUSHING

    def _answer_otherwise(self, response: Response, tail: bytes) -> None:
        """What is not plain JSON on a connection that is kept."""
        start = compose_head(
            response.status,
            response.content_type,
            response.headers,
            length=len(response.body),
            connection=self.connection_option(),
            tail=tail,
        )
        head = self._head
        is_bare = head is not None and head.method == "HEAD"
        if is_bare or response.status in (204, 304) or not response.body:
            self._transport.write(start)
        else:
            self._transport.writelines((start, response.body))
        if not self.stays_open():
            self.finish()

    def _refuse(self, error: HttpError) -> None:
        """Answer what is no request, and close: what follows cannot be told apart any more."""
        self._endpoint.counters.refused += 1
        self._end_body()
        self._held.clear()
        self._head = None
        self._phase = BUSY
        self._answer(refusal(error.status, error.code, str(error), error.headers))

    # --- for answers that are streamed -----------------------------------------------------

    def stays_open(self) -> bool:
        head = self._head
        return head is not None and head.keeps_alive and not self._endpoint.draining

    def connection_option(self) -> bytes:
        if not self.stays_open():
            return b"close"
        return b"" if self._head is not None and self._head.is_current else b"keep-alive"

    @property
    def head(self) -> Head:
        assert self._head is not None
        return self._head

    def write(self, *parts: bytes) -> None:
        if self._phase == CLOSED or self._transport.is_closing():
            raise asyncio.CancelledError
        self._transport.writelines(parts)

    def tail(self) -> bytes:
        now = self._endpoint.loop.time()
        if now >= self._endpoint.dates.until:
            self._endpoint.dates.refresh(now)
        return self._endpoint.dates.tail

    async def room(self) -> None:
        """Wait until the client has taken what was written."""
        if not self._writable:
            self._room = self._endpoint.loop.create_future()
            await self._room
            self._room = None

    def answer_instead(self, response: Response) -> None:
        """For a stream that failed before it began."""
        self._task = None
        self._answer(response)
        if self._phase == IDLE:
            self._next()

    def streamed(self, *, keep: bool) -> None:
        """The stream has ended."""
        self._task = None
        if self._phase == CLOSED:
            return
        if not keep:
            self.finish()
            return
        self._since = self._endpoint.loop.time()
        self._phase = IDLE if self._writable else FLUSHING
        if self._phase == IDLE:
            self._next()

    # --- ending ----------------------------------------------------------------------------

    def finish(self) -> None:
        """Close when the client has everything. It may still be sending: if what it sends met a
        closed socket, it would be told so before it has read the answer."""
        self._phase = LINGERING
        self._held.clear()
        endpoint = self._endpoint
        self._since = endpoint.loop.time()
        endpoint.deadlines.watch(self, self._since + endpoint.limits.linger_seconds)
        if self._transport.can_write_eof():
            self._transport.write_eof()
            if not self._reading:
                self._reading = True
                self._transport.resume_reading()
        else:
            self._transport.close()

    def drain(self) -> None:
        if self._phase == IDLE:
            self._phase = LINGERING
            self._since = self._endpoint.loop.time()
            self._endpoint.deadlines.watch(self, self._since + 1)
            self._transport.close()

    def abort(self) -> None:
        if self._phase != CLOSED:
            self._transport.abort()

    def look(self, now: float) -> float:
        """See whether the client has run out of time (see `deadlines`)."""
        phase = self._phase
        limits = self._endpoint.limits
        if phase == CLOSED:
            return 0.0
        if not self._writable or phase == FLUSHING:
            return self._look_at_writing(now)
        if phase == IDLE:
            limit = limits.keep_alive_seconds if self._head else limits.head_seconds
        elif phase == HEAD:
            limit = limits.head_seconds
        elif phase == BODY:
            limit = limits.body_seconds
        elif phase == LINGERING:
            limit = limits.linger_seconds
            if self._transport.get_write_buffer_size():
                return self._look_at_writing(now)
        else:
            return now + limits.keep_alive_seconds
        if now < self._since + limit:
            return self._since + limit
        if phase in (HEAD, BODY):
            self._endpoint.counters.timed_out += 1
            part = "head" if phase == HEAD else "body"
            self._refuse(
                HttpError(408, "request_timeout", f"the {part} did not come within {limit:g} s")
            )
            return now + limits.linger_seconds
        if phase == IDLE:
            self._phase = LINGERING
            self._since = now
            self._transport.close()
            return now + limits.linger_seconds
        self._transport.abort()
        return 0.0

    def _look_at_writing(self, now: float) -> float:
        """Cut the connection if nothing was taken for too long."""
        unwritten = self._transport.get_write_buffer_size()
        limit = self._endpoint.limits.write_seconds
        if unwritten != self._unwritten:
            self._unwritten = unwritten
            self._since = now
        elif now >= self._since + limit:
            self._endpoint.counters.timed_out += 1
            self._transport.abort()
            return 0.0
        return now + limit / 4


def _response(pending: Pending[Any], future: asyncio.Future[Any]) -> Response:
    try:
        return pending.finish(future.result())
    except asyncio.CancelledError:
        return refusal(
            503,
            "draining",
            "the call was given up, try another connection",
            ((b"Retry-After", b"1"),),
        )
    except Exception as error:  # noqa: BLE001 - whatever it is, the client gets an answer
        return pending.failed(error) if pending.failed else error_answer(error)


def _give_back(pending: Pending[Any], result: Any) -> None:
    if pending.undelivered is not None:
        try:
            pending.undelivered(result)
        except Exception:
            logger.exception("what a client did not receive could not be given back")
