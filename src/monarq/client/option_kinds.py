"""Refuses options that a queue of this kind would keep and never use, and unknown choices."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import TypeVar

from msgspec import structs

from monarq.errors import InvalidRequestError
from monarq.model import KIND_OF_OPTION, QueueKind, QueueOptions

E = TypeVar("E", bound=StrEnum)

_KINDS = {
    name: KIND_OF_OPTION[info.name]
    for info in structs.fields(QueueOptions)
    if info.name in KIND_OF_OPTION
    for name in (info.name, info.encode_name)
}


def one_of(choices: type[E], word: object, field: str) -> E:
    """Return the choice with this name."""
    for choice in choices:
        if choice == word:
            return choice
    raise InvalidRequestError(f"{field} must be one of {', '.join(choices)}")


def needs_kind(options: Iterable[str]) -> bool:
    """Whether one of them means something for one kind of queue alone."""
    return any(name in _KINDS for name in options)


def check_kind(queue: str, kind: QueueKind, options: Iterable[str]) -> None:
    for name in options:
        wanted = _KINDS.get(name, kind)
        if wanted is not kind:
            article = "an" if kind is QueueKind.ORDERED else "a"
            raise InvalidRequestError(
                f"{name} is an option of {wanted} queues, and {queue!r} is {article} {kind} queue"
            )
