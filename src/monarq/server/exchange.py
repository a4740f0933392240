"""What passes between the HTTP protocol and the routes: a request in, an answer out.

Knows nothing of sockets and nothing of queues, so that both sides can be read alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, Generic, TypeAlias, TypeVar

from msgspec import Struct

from monarq.errors import ForbiddenError
from monarq.local_token import HEADER, token_file
from monarq.operations.operation import Role

T = TypeVar("T")

JSON = b"application/json"


class Principal(Struct, frozen=True):
    """Who is calling. `subject` is stamped on what it pushes."""

    subject: str | None
    role: Role
    csrf_token: str | None = None
    """Known by a cookie: what a call that changes something must send besides."""
    is_proven: bool = True
    """False where authentication is off and the caller did not prove to be the broker's user:
    everything but running commands is allowed then."""

    @property
    def may_run_commands(self) -> bool:
        """Return whether the caller may enqueue shell commands and work on their queues."""
        return self.is_proven and self.role in (Role.JOBS, Role.ADMIN)

    def check_may_run_commands(self, what: str) -> None:
        """Raise ForbiddenError if it may not; `what` begins the sentence ("this call")."""
        if self.may_run_commands:
            return
        if not self.is_proven:
            raise ForbiddenError(
                f"{what} needs proof that you are the user who runs this broker: send the token "
                f"in that user's file {token_file()} as the header {HEADER}; in a browser, open "
                "the link that `monarq serve` printed"
            )
        raise ForbiddenError(f"{what} needs the role {Role.JOBS}, not {self.role}")


UNAUTHENTICATED = ""
"""The owner of request bodies that come without credentials although authentication is on."""


class Admission(Struct, frozen=True):
    """The application's consent to read a request's body, given by its head alone."""

    principal: Principal
    most_bytes: int | None = None
    """Largest body; None for the server's own limit."""
    owner: str | None = None
    """Whose share of the memory for bodies it uses; None for the client's address."""


class RequestHead:
    """The request line and the headers. Clients send the same again and again, and then share
    one: what it says never changes."""

    __slots__ = ("headers", "meaning", "method", "target")

    def __init__(self, method: str, target: str, headers: dict[str, str]) -> None:
        self.method = method
        self.target = target
        """As in the request line."""
        self.headers = headers
        """By lower-case name."""
        self.meaning: Any = None
        """What the application found it to ask for, so that it need not look again."""


class Request(Struct):
    """One request, decoded as its route says: `body` and `query` are structs of the types that
    the route names (None where it names none), `path` its percent-decoded parameters."""

    path: dict[str, str]
    query: Any
    body: Any
    headers: dict[str, str]
    """By lower-case name."""
    principal: Principal
    size: int = 0
    """Bytes of the body."""


class Response(Struct, frozen=True):
    """A whole answer. A 204 has no body."""

    status: int = 200
    body: bytes = b""
    content_type: bytes = JSON
    headers: tuple[tuple[bytes, bytes], ...] = ()


class StreamingResponse(Struct):
    """An answer that is produced as the client takes it: sent chunked, and `chunks` is asked
    for the next only when the socket has room. It is closed (`aclose`) if the client goes away."""

    chunks: AsyncIterator[bytes]
    status: int = 200
    content_type: bytes = JSON
    headers: tuple[tuple[bytes, bytes], ...] = ()
    is_event_stream: bool = False
    """Whether it has no end, and counts among the event streams of the client's address."""


class Pending(Struct, Generic[T]):
    """An answer that is ready when `future` is: `finish` makes it from the result. Spares the
    hot calls a task each. If the client goes away first the future is cancelled; if it does
    after the result is there but before the answer could be written, `undelivered` is told
    of the result. `told` gets every answer that was made; the application sets it, so handlers
    leave it out."""

    future: asyncio.Future[T]
    finish: Callable[[T], Response]
    undelivered: Callable[[T], None] | None = None
    told: Callable[[Response], None] | None = None


Admitted: TypeAlias = Admission | Response
"""What the application says to a head whose body is still to come; a response refuses it."""
Answer: TypeAlias = Response | StreamingResponse
Handled: TypeAlias = Answer | Pending[Any] | Coroutine[Any, Any, Answer | Pending[Any]]
"""What a handler returns. A coroutine is run as a task, and cancelled if the client goes away;
what it ends with is treated as if the handler had returned it."""
