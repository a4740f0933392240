"""Registers the functions that carry out operations, and checks that none is missing or double."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Generic, TypeVar, cast, get_type_hints

from monarq.model import Page
from monarq.operations.operation import Operation, Paged

C = TypeVar("C")
R = TypeVar("R")
Handler = Callable[[C, Any], Awaitable[Any] | Any]


class Handlers(Generic[C]):
    """The handlers of one place, such as a store. C is what they get besides the operation. A table
    of code, filled by imports: all brokers of a process share it."""

    def __init__(self) -> None:
        self.table: dict[type[Operation[Any]], Handler[C]] = {}

    def __call__(
        self, operation: type[Operation[R]]
    ) -> Callable[[Callable[[C, Any], Awaitable[R] | R]], Callable[[C, Any], Awaitable[R] | R]]:
        """Register the decorated function as the operation's handler."""

        def register(
            function: Callable[[C, Any], Awaitable[R] | R],
        ) -> Callable[[C, Any], Awaitable[R] | R]:
            if operation in self.table:
                raise TypeError(f"{operation.__name__} has two handlers")
            self.table[operation] = function
            return function

        return register


def check(place: str, *parts: Handlers[Any], wanted: Iterable[type[Operation[Any]]]) -> None:
    """Raise `TypeError` unless each operation has exactly one handler, of the right types."""
    found: dict[type[Operation[Any]], Any] = {}
    for part in parts:
        for operation, function in part.table.items():
            if operation in found:
                raise TypeError(f"{operation.__name__} has two handlers in {place}")
            found[operation] = function
            hints = get_type_hints(function)
            result, (_, argument) = hints.pop("return"), hints.values()
            if argument is not operation or result != result_type(operation):
                raise TypeError(f"{function.__qualname__} is no handler of {operation.__name__}")
    for operation in wanted:
        if operation not in found:
            raise TypeError(f"{operation.__name__} has no handler in {place}")


def result_type(operation: type[Operation[Any]]) -> Any:
    """Return the R of an operation, also if a base class between it and `Operation` names it."""
    for kind in operation.__mro__:
        for base in kind.__dict__.get("__orig_bases__", ()):
            origin = getattr(base, "__origin__", None)
            if origin is Paged:
                return cast(Any, Page)[base.__args__[0]]
            if origin is Operation:
                return base.__args__[0]
    raise TypeError(f"{operation.__name__} does not say what it returns")
