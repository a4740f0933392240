"""One connection: hands the requests that come in to the application, and writes the answers.

It makes no task for an answer that is there or pending, and no timer for any.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any, cast

from monarq.errors import OverloadedError, drop_frames
from monarq.server.answers import Headers, HttpError, error_answer, refusal
from monarq.server.exchange import (
    JSON,
    Admission,
    Admitted,
    Handled,
    Pending,
    Response,
    StreamingResponse,
)
from monarq.server.http.endpoint import Endpoint
from monarq.server.http.head import Head
from monarq.server.http.phases import BODY, BUSY, CLOSED, FLUSHING, HEAD, IDLE, LINGERING
from monarq.server.http.reading import Reading
from monarq.server.http.streaming import stream
from monarq.server.http.writing import compose_head

logger = logging.getLogger("monarq.server.http")

_LARGE = 32 << 10
"""A body from here on is not copied behind its head, but written as it is; and more than this
that waits to be sent makes the connection wait."""


class Connection(Reading):
    __slots__ = (
        "_pending",
        "_room",
        "_task",
        "_unsent",
        "_unwritten",
        "_writable",
    )

    def __init__(self, endpoint: Endpoint) -> None:
        super().__init__(endpoint)
        self._pending: Pending[Any] | None = None
        self._task: asyncio.Task[None] | None = None
        self._unsent: tuple[Pending[Any], Any] | None = None
        """What was answered last, while part of it is still here."""
        self._writable = True
        self._room: asyncio.Future[None] | None = None
        """What a stream waits for while it is not."""
        self._unwritten = 0
        """Bytes that waited to be sent when that was last looked at."""

    # --- from the transport --------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        # Told that there is room again only when all is sent: only then is an answer delivered.
        self._transport.set_write_buffer_limits(high=_LARGE, low=0)
        endpoint = self._endpoint
        peer = transport.get_extra_info("peername")
        self.address = peer[0] if isinstance(peer, tuple) else ""
        self._since = endpoint.loop.time()
        full = endpoint.fullness(self.address)
        if full is not None:
            if endpoint.turn_away(self):
                self._refuse(HttpError(503, "overloaded", full, ((b"Retry-After", b"1"),)))
            else:
                self._transport.abort()
            return
        endpoint.opened(self)
        limits = endpoint.limits
        first = min(limits.head_seconds, limits.keep_alive_seconds)
        endpoint.deadlines.watch(self, self._since + first)

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
        endpoint.unsent.remove(self)
        self._end_body()
        self._held = None
        if phase == BUSY:
            endpoint.counters.abandoned += 1
        if self._pending is not None:
            # If its result is there already, `_resolved` is still to be called, and sees to it.
            self._pending.future.cancel()
        if self._task is not None:
            # In the next turn: a task that is cancelled before its first step never awaits the
            # coroutine it was made for.
            endpoint.loop.call_soon(self._task.cancel)
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
        endpoint.unsent.add(self)

    def resume_writing(self) -> None:
        self._writable = True
        self._endpoint.unsent.remove(self)
        self._unsent = None
        if self._room is not None and not self._room.done():
            self._room.set_result(None)
        if self._phase == FLUSHING:
            self._phase = IDLE
            if self._endpoint.draining:
                self.finish()
            else:
                self._next()

    # --- answering -------------------------------------------------------------------------

    def _admit(self, head: Head) -> Admission | None:
        try:
            admitted = self._endpoint.application.admit(head)
        except Exception as error:  # noqa: BLE001 - whatever it is, the client gets an answer
            admitted = error_answer(error)
        if isinstance(admitted, Admission):
            return admitted
        if isinstance(admitted, Response):
            self._turn_away(admitted)
        else:
            self._task = self._endpoint.loop.create_task(self._admit_later(head, admitted))
        return None

    async def _admit_later(self, head: Head, coroutine: Coroutine[Any, Any, Admitted]) -> None:
        try:
            admitted = await coroutine
        except Exception as error:  # noqa: BLE001 - whatever it is, the client gets an answer
            admitted = error_answer(error)
        self._task = None
        if self._phase == CLOSED or self._transport.is_closing():
            return
        if isinstance(admitted, Response):
            self._turn_away(admitted)
            return
        data = bytes(self._held or b"")
        self._held = None
        self._go_on(data, self._admitted(head, admitted, data, 0))
        self._read_again()

    def _turn_away(self, response: Response) -> None:
        """Answer a request whose body is not wanted, and close: the body is not read."""
        self._endpoint.counters.requests += 1
        self._close_with(response)

    def _run(self, head: Head, body: bytes, admission: Admission | None = None) -> None:
        self._phase = BUSY
        self._head = head
        endpoint = self._endpoint
        endpoint.counters.requests += 1
        try:
            handled = endpoint.application.handle(head, body, admission)
        except Exception as error:  # noqa: BLE001 - whatever it is, the client gets an answer
            handled = error_answer(error)
        if type(handled) is Response:
            self._answer(handled)
        else:
            self._wait_for(handled)

    def _wait_for(self, handled: Handled) -> None:
        if isinstance(handled, Pending):
            self._pending = handled
            handled.future.add_done_callback(self._resolved)
        elif isinstance(handled, StreamingResponse):
            self._begin_stream(handled)
        elif isinstance(handled, Response):
            self._answer(handled)
            if self._phase == IDLE:
                self._next()
        else:
            self._task = self._endpoint.loop.create_task(self._await(handled))

    def _begin_stream(self, answer: StreamingResponse) -> None:
        endpoint = self._endpoint
        if not answer.is_event_stream:
            self._task = endpoint.loop.create_task(stream(self, answer))
        elif endpoint.event_streams[self.address] < endpoint.limits.event_streams_per_address:
            endpoint.event_streams[self.address] += 1
            self._task = endpoint.loop.create_task(self._stream_events(answer))
        else:
            self.answer_instead(
                error_answer(OverloadedError("too many pages watch from your address: close some"))
            )

    async def _stream_events(self, answer: StreamingResponse) -> None:
        try:
            await stream(self, answer)
        finally:
            self._endpoint.event_streams[self.address] -= 1
            if not self._endpoint.event_streams[self.address]:
                del self._endpoint.event_streams[self.address]

    async def _await(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        handled: Handled
        try:
            handled = await coroutine
        except Exception as error:  # noqa: BLE001 - whatever it is, the client gets an answer
            handled = error_answer(error)
        self._task = None
        if self._phase != CLOSED and not self._transport.is_closing():
            self._wait_for(handled)
        elif isinstance(handled, Pending):
            handled.future.add_done_callback(lambda future: _not_wanted(handled, future))
            handled.future.cancel()

    def _resolved(self, future: asyncio.Future[Any]) -> None:
        pending = self._pending
        assert pending is not None
        self._pending = None
        if self._phase == CLOSED or self._transport.is_closing():
            _not_wanted(pending, future)
            return
        self._answer(_response(pending, future))
        if self._phase == IDLE:
            if self._held is not None or not self._reading:
                self._next()
        elif not self._writable and not future.cancelled() and future.exception() is None:
            self._unsent = (pending, future.result())

    def _answer(self, response: Response) -> None:
        """Write a whole answer; the connection is then idle, flushing or lingering."""
        head = self._head
        endpoint = self._endpoint
        now = endpoint.loop.time()
        heads = endpoint.answer_heads
        if now >= heads.until:
            heads.refresh(now)
        if (
            head is not None
            and head.is_plain
            and not response.headers
            and response.content_type is JSON
            and not endpoint.draining
        ):
            body = response.body
            start = heads.plain(response.status, len(body), head.is_get)
            if len(body) < _LARGE:
                self._transport.write(start + body)
            else:
                self._transport.writelines((start, body))
        else:
            self._answer_otherwise(response)
            if self._phase >= LINGERING:
                return
        self._since = now
        self._phase = IDLE if self._writable else FLUSHING

    def _answer_otherwise(self, response: Response) -> None:
        """What is not plain JSON on a connection that is kept."""
        start = compose_head(
            response.status,
            response.content_type,
            response.headers,
            length=len(response.body),
            connection=self.connection_option(),
            guards=self.guards(response.headers),
            tail=self._endpoint.answer_heads.tail,
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
        self._close_with(refusal(error.status, error.code, str(error), error.headers))

    def _close_with(self, response: Response) -> None:
        """Answer, and close when the client has the answer."""
        self._held = None
        self._head = None
        self._phase = BUSY
        self._answer(response)

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
        heads = self._endpoint.answer_heads
        now = self._endpoint.loop.time()
        if now >= heads.until:
            heads.refresh(now)
        return heads.tail

    def guards(self, headers: Headers) -> bytes:
        """Further lines for the head of an answer with these headers."""
        if self._head is not None and not self._head.is_get:
            return b""
        return self._endpoint.answer_heads.guards(headers)

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
        self._held = None
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

    def cut(self) -> None:
        self._endpoint.loop.call_soon(self.abort)

    def unsent_bytes(self) -> int:
        return self._transport.get_write_buffer_size()

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
            return self._look_at_body(now)
        elif phase == LINGERING:
            limit = limits.linger_seconds
            if self._transport.get_write_buffer_size():
                return self._look_at_writing(now)
        else:
            return now + limits.keep_alive_seconds
        if now < self._since + limit:
            return self._since + limit
        if phase == HEAD:
            return self._time_out(now, f"the head did not come within {limit:g} s")
        if phase == IDLE:
            self._phase = LINGERING
            self._since = now
            self._transport.close()
            return now + limits.linger_seconds
        self._transport.abort()
        return 0.0

    def _look_at_body(self, now: float) -> float:
        body = self._body
        assert body is not None
        limits = self._endpoint.limits
        paused = self._since + limits.body_seconds
        slow = body.began + limits.body_seconds + len(body.content) / limits.body_rate
        if now >= paused:
            message = f"no more of the body came within {limits.body_seconds:g} s"
        elif now >= slow:
            message = f"the body came with less than {limits.body_rate} bytes per second"
        else:
            return min(paused, slow)
        return self._time_out(now, message)

    def _time_out(self, now: float, message: str) -> float:
        self._endpoint.counters.timed_out += 1
        self._refuse(HttpError(408, "request_timeout", message))
        return now + self._endpoint.limits.linger_seconds

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
        response = pending.finish(future.result())
    except asyncio.CancelledError:
        message = "the call was given up, try another connection"
        return refusal(503, "draining", message, ((b"Retry-After", b"1"),))
    except Exception as error:  # noqa: BLE001 - whatever it is, the client gets an answer
        response = error_answer(error)
    if pending.told is not None:
        pending.told(response)
    return response


def _not_wanted(pending: Pending[Any], future: asyncio.Future[Any]) -> None:
    if future.cancelled():
        return
    try:
        # Not `exception`, with which the future would keep the traceback.
        result = future.result()
    except Exception as error:  # noqa: BLE001 - nobody is there to be told
        drop_frames(error)
    else:
        _give_back(pending, result)


def _give_back(pending: Pending[Any], result: Any) -> None:
    if pending.undelivered is not None:
        try:
            pending.undelivered(result)
        except Exception:
            logger.exception("what a client did not receive could not be given back")
