"""Operations: the calls beside the hot path, each declared once as a struct.

A declaration names the arguments with their constraints, the result, and the HTTP routes. The
stores and the broker register one handler for each operation (`handlers.py`). The server's
routes, the OpenAPI document, the HTTP client and the typed methods of all clients are derived
from the declaration.

- `Operation[R]` is a call that returns an R: what a Python caller wants, such as a page, a count
  or a yes or no.
- Fields are flat: numbers, texts, enums and lists of them. A required field becomes a positional
  argument of the generated method, an optional field a keyword argument.
- A `Route` is one way to the operation over HTTP. Fields that its path names come from the path,
  all other fields from the query (GET and DELETE) or from the body. An optional field that only
  another route names in its path cannot be given.
- `Route.answer` is the struct of the HTTP answer, and `Route.result` its field that holds the
  result. Without `answer`, the result itself is the answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Annotated, Any, ClassVar, Generic, TypeVar

from msgspec import Meta, Struct

from monarq.model import MAX_NAME_LENGTH, ConfiguredQueue, Page
from monarq.wire.paging import After, Limit, Offset

R = TypeVar("R")
Row = TypeVar("Row")

Name = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=MAX_NAME_LENGTH,
        pattern=r"^[^\x00-\x1f\x7f-\x9f]*\Z",
        description="1 to 255 characters, no control characters",
    ),
]
Label = Annotated[
    str,
    Meta(
        max_length=MAX_NAME_LENGTH,
        pattern=r"^[^\x00-\x1f\x7f-\x9f]*\Z",
        description="at most 255 characters, no control characters",
    ),
]
"""A name that may be left empty."""


class Role(StrEnum):
    """What a caller may do. Each role includes the ones before it."""

    READ = "read"
    WRITE = "write"
    JOBS = "jobs"
    """May enqueue shell commands."""
    ADMIN = "admin"


class Route(Struct, frozen=True):
    """One way to an operation over HTTP."""

    method: str
    path: str
    """As in `/api/v1/records/{kind}`. A parameter has the JSON name of a field."""
    summary: str
    role: Role = Role.READ
    answer: type[Struct] | None = None
    result: str = ""
    body: type[Body] | None = None
    """Other spellings of the body or the query, where clients of Queen send them."""
    needs_body: bool = True
    """False if an empty body, or none, is a valid one."""
    status: int = 200
    errors: tuple[int, ...] = ()
    name: str = ""
    """The operationId in the OpenAPI document; the operation's name if it is empty."""


class Body(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """A body or query whose fields are not those of the operation."""

    def fields(self) -> dict[str, Any]:
        """Return the operation's fields; raise `InvalidRequestError`."""
        raise NotImplementedError

    def answer(self, request: Operation[Any], route: Route, result: Any) -> Any:
        """Return the HTTP answer, which may repeat what the operation does not know."""
        return request.answer(route, result)


class Operation(
    Struct, Generic[R], frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True
):
    routes: ClassVar[tuple[Route, ...]] = ()
    composed: ClassVar[bool] = False
    """Whether the broker carries it out by several calls of the store."""

    @property
    def writes(self) -> bool:
        """Whether the store needs a write transaction."""
        return any(route.method != "GET" for route in self.routes)

    def check(self) -> None:
        """Check the rules between fields; raise `InvalidRequestError`."""

    def needs_commands(self) -> str | None:
        """Return what of this call needs the right to run commands, or None if nothing does."""
        return None

    def needs_proof(self) -> str | None:
        """Return what of this call needs proof of the user where nobody authenticates.

        A store refuses it too, but cannot say where the proof is found.
        """
        return None

    def wakes(self, result: R) -> Iterable[str | None]:
        """Return the queues whose parked pops must look again; None stands for all queues."""
        return ()

    def changes(self, result: R) -> Mapping[str, ConfiguredQueue | None]:
        """Return the queues that have other settings now, by name; None for one that is gone."""
        return {}

    def answer(self, route: Route, result: R) -> Any:
        """Return the HTTP answer for a result."""
        return result if route.answer is None else route.answer(**{route.result: result})

    def read(self, route: Route, answer: Any) -> R:
        """Return the result that an HTTP answer holds."""
        result: R = answer if route.answer is None else getattr(answer, route.result)
        return result


class Paged(Operation[Page[Row]], Generic[Row], frozen=True, kw_only=True):
    """Returns one page of a list.

    A store's handler reads `limit` and `after`. The broker applies `offset`, `keep` and
    `row_bytes`.
    """

    limit: Limit = 100
    offset: Offset = 0
    after: After | None = None

    @property
    def bounded(self) -> bool:
        """Return whether rows may be large, so that `row_bytes` bounds a page."""
        return False

    def keep(self, row: Row) -> bool:
        """Return whether a row passes the filters that the store does not apply."""
        return True

    def row_bytes(self, row: Row) -> int:
        """Return about how many bytes of memory a row takes."""
        return 0

    def answer(self, route: Route, result: Page[Row]) -> Any:
        assert route.answer is not None
        return route.answer(
            limit=self.limit, offset=self.offset, next=result.next, **{route.result: result.rows}
        )

    def read(self, route: Route, answer: Any) -> Page[Row]:
        return Page(getattr(answer, route.result), answer.next)
