"""Errors as they leave Spark's workers: without the way they took through our code.

Spark shows the traceback of whatever its workers raise. Of a mistake that we name, the message
is all that helps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import wraps
from typing import ParamSpec, TypeVar

from monarq.errors import MonarqError

P = ParamSpec("P")
T = TypeVar("T")


def plain(call: Callable[P, T]) -> Callable[P, T]:
    """For what Spark calls."""

    @wraps(call)
    def called(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return call(*args, **kwargs)
        except MonarqError as error:
            raise error.with_traceback(None) from None

    return called


def plain_rows(call: Callable[P, Iterator[T]]) -> Callable[P, Iterator[T]]:
    """For what Spark iterates over."""

    @wraps(call)
    def called(*args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        try:
            yield from call(*args, **kwargs)
        except MonarqError as error:
            raise error.with_traceback(None) from None

    return called
