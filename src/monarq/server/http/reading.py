"""The reading half of a connection: takes requests out of the bytes that come in, one at a time.

It frames requests itself and leaves the head's fields to `head.py`: a request that comes whole,
with the same head as the one before, costs a comparison; with another that is known, a search and
a look-up. Nothing is looked at while a request is being answered; it is kept, and past a bound the
client is not read from.
"""

from __future__ import annotations

import abc
import asyncio

from monarq.server.answers import HttpError
from monarq.server.exchange import Admission
from monarq.server.http.bodies import Body
from monarq.server.http.endpoint import Endpoint
from monarq.server.http.head import CHUNKED, Head, check_incomplete, too_large
from monarq.server.http.phases import BODY, CHECKING, HEAD, IDLE, LINGERING
from monarq.server.http.writing import CONTINUE


class Reading(asyncio.Protocol, abc.ABC):
    __slots__ = (
        "_admission",
        "_body",
        "_endpoint",
        "_head",
        "_held",
        "_phase",
        "_reading",
        "_since",
        "_transport",
        "address",
        "looked_at",
    )

    _transport: asyncio.Transport

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._phase = IDLE
        self._since = 0.0
        """When the phase began, or something last moved in it."""
        self._head: Head | None = None
        """Of the request that is coming in or being answered, or of the last one."""
        self._held: bytearray | None = None
        """What came in and was not yet looked at, or is part of a head."""
        self._body: Body | None = None
        self._admission: Admission | None = None
        """Of the body that is coming in."""
        self.address = ""
        """The client's, without its port."""
        self._reading = True
        self.looked_at = 0

    @abc.abstractmethod
    def _run(self, head: Head, body: bytes, admission: Admission | None = None) -> None:
        """Have a request answered. The connection is idle again if it was at once."""

    @abc.abstractmethod
    def _admit(self, head: Head) -> Admission | None:
        """Ask the application whether it wants a body. None if the request was refused, or if
        `_admitted` will be called later."""

    @abc.abstractmethod
    def _refuse(self, error: HttpError) -> None:
        """Answer what is no request, and close."""

    @abc.abstractmethod
    def look(self, now: float) -> float:
        """See whether the client has run out of time (see `deadlines`)."""

    def data_received(self, data: bytes) -> None:
        phase = self._phase
        if phase == IDLE:
            self._read(data)
        elif phase == HEAD:
            self._read_on(data)
        elif phase == BODY:
            self._since = self._endpoint.loop.time()
            self._go_on(data, self._read_body(data, 0))
        elif phase < LINGERING:
            held = self._hold(data)
            if self._reading and len(held) > self._endpoint.limits.read_ahead_bytes:
                self._reading = False
                self._transport.pause_reading()

    def _read(self, data: bytes) -> None:
        """Take the requests in `data` one after the other, until one is incomplete or has to
        wait. The connection is idle."""
        heads = self._endpoint.heads
        at = 0
        size = len(data)
        while at < size:
            head = self._head
            if head is not None and data.startswith(head.raw, at):
                end = at + len(head.raw)
            else:
                end = data.find(b"\r\n\r\n", at) + 4
                if end < 4:
                    self._begin_head(data[at:] if at else data)
                    return
                raw = data[at:end]
                if raw.startswith(b"\r\n"):
                    # Some clients end a body with an empty line that is not part of it.
                    at += 2
                    continue
                try:
                    head = heads.read(raw)
                except HttpError as error:
                    self._refuse(error)
                    return
            length = head.length
            at = end + length
            if length < 0 or at > size:
                at = self._begin_body(head, data, end)
            else:
                self._run(head, data[end:at] if length else b"")
            if self._phase != IDLE:
                if at < size and self._phase < LINGERING:
                    self._hold(data[at:])
                return

    def _next(self) -> None:
        """Go on reading after an answer. The connection is idle."""
        held = self._held
        if held is not None:
            self._held = None
            self._read(bytes(held))
        self._read_again()

    def _read_again(self) -> None:
        """Read on from the client if that was paused, and there is room."""
        if not self._reading and self._phase < LINGERING:
            held = self._held
            if held is None or len(held) <= self._endpoint.limits.read_ahead_bytes:
                self._reading = True
                self._transport.resume_reading()

    def _hold(self, data: bytes) -> bytearray:
        held = self._held
        if held is None:
            held = self._held = bytearray(data)
        else:
            held += data
        return held

    # --- a head that comes in pieces -------------------------------------------------------

    def _begin_head(self, data: bytes) -> None:
        while data.startswith(b"\r\n"):
            data = data[2:]
        if not data:
            return
        self._phase = HEAD
        endpoint = self._endpoint
        self._since = endpoint.loop.time()
        endpoint.deadlines.watch(self, self._since + endpoint.limits.head_seconds)
        self._check_head(self._hold(data), 0)

    def _read_on(self, data: bytes) -> None:
        before = len(self._held or b"")
        held = self._hold(data)
        if held.find(b"\r\n\r\n", max(before - 3, 0)) >= 0:
            self._held = None
            self._phase = IDLE
            self._read(bytes(held))
        else:
            self._check_head(held, before)

    def _check_head(self, held: bytearray, start: int) -> None:
        try:
            check_incomplete(held, start, self._endpoint.limits)
        except HttpError as error:
            self._refuse(error)

    # --- a body that comes in pieces -------------------------------------------------------

    def _begin_body(self, head: Head, data: bytes, at: int) -> int:
        """Ask the application whether it wants the body, and if so begin to read it. Returns
        where the body ends in `data`."""
        self._phase = CHECKING
        self._head = head
        admission = self._admit(head)
        return at if admission is None else self._admitted(head, admission, data, at)

    def _admitted(self, head: Head, admission: Admission, data: bytes, at: int) -> int:
        endpoint = self._endpoint
        most = endpoint.limits.body_bytes
        if admission.most_bytes is not None:
            most = min(most, admission.most_bytes)
        if head.length > most:
            self._refuse(too_large(head.length, most))
            return len(data)
        self._phase = BODY
        now = self._since = endpoint.loop.time()
        endpoint.deadlines.watch(self, now + endpoint.limits.body_seconds)
        owner = self.address if admission.owner is None else admission.owner
        self._admission = admission
        self._body = Body(
            endpoint.bodies.share(owner),
            None if head.length == CHUNKED else head.length,
            most,
            now,
            self._refuse,
        )
        endpoint.bodies.add(self._body)
        if at < len(data):
            return self._read_body(data, at)
        if head.expects:
            self._transport.write(CONTINUE)
        return at

    def _go_on(self, data: bytes, at: int) -> None:
        """Look at what came behind the part of a body that ends at `at`."""
        if at < len(data):
            if self._phase == IDLE:
                self._read(data[at:])
            elif self._phase < LINGERING:
                self._hold(data[at:])

    def _read_body(self, data: bytes, at: int) -> int:
        """Take what belongs to the body, and run the request if that was all of it. Returns
        where the body ends in `data`."""
        body = self._body
        assert body is not None
        bodies = self._endpoint.bodies
        before = len(body.content)
        try:
            end = body.feed(data, at, self._since)
        except HttpError as error:
            bodies.count(body, len(body.content) - before)
            self._refuse(error)
            return len(data)
        bodies.count(body, len(body.content) - before)
        if body.is_whole:
            head, admission = self._head, self._admission
            assert head is not None
            self._end_body()
            self._run(head, bytes(body.content), admission)
        else:
            bodies.make_room(body, self._since)
        return end

    def _end_body(self) -> None:
        if self._body is not None:
            self._endpoint.bodies.remove(self._body)
            self._body = None
            self._admission = None
