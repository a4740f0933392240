"""Refuses options that a queue of this kind would keep and never use, and unknown choices."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import TypeVar

from monarq.errors import InvalidRequestError
from monarq.model import QueueKind
from monarq.model.queue_options import OPTION_BY_NAME

E = TypeVar("E", bound=StrEnum)


def one_of(choices: type[E], word: object, field: str) -> E:
    """Return the choice with this name."""
    for choice in choices:
        if choice == word:
            return choice
    raise InvalidRequestError(f"{field} must be one of {', '.join(choices)}")


def _kind_of(option: str) -> QueueKind | None:
    found = OPTION_BY_NAME.get(option)
    return None if found is None else found.kind


def needs_kind(options: Iterable[str]) -> bool:
    """Return whether one of them is for one kind of queue alone."""
    return any(_kind_of(name) is not None for name in options)


def check_kind(queue: str, kind: QueueKind, options: Iterable[str]) -> None:
    for name in options:
        wanted = _kind_of(name)
        if wanted not in (None, kind):
            article = "an" if kind is QueueKind.ORDERED else "a"
            raise InvalidRequestError(
                f"{name} is an option of {wanted} queues, and {queue!r} is {article} {kind} queue"
            )
