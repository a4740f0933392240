"""Popped messages that are made when somebody looks at them.

A pop of a thousand messages comes as one segment. Whoever only needs seqs, ids and payloads, to
pass them on, takes these from `walk` and never has a struct a message made; to everybody else
this is a sequence of `Message`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, repeat
from typing import overload

from monarq.ids import message_ids
from monarq.model import Message
from monarq.store import segments

Walked = tuple[int, str, bytes]
"""Seq, transaction id, payload."""


class MessageRun:
    """Consecutive messages of one partition on their first delivery, as they were pushed together.

    Lists are None where no message has such a value.
    """

    __slots__ = ("_data", "_offsets", "count", "created_at", "first_seq", "headers", "partition",
                 "partition_id", "producers", "queue", "trace_ids", "transaction_ids")  # fmt: skip

    def __init__(
        self,
        queue: str,
        partition: str,
        partition_id: int,
        first_seq: int,
        count: int,
        created_at: int,
        data: bytes,
        offsets: Sequence[int] | bytes,
        transaction_ids: Sequence[str | None] | None = None,
        trace_ids: Sequence[str | None] | None = None,
        producers: Sequence[str | None] | None = None,
        headers: Sequence[bytes | None] | None = None,
    ) -> None:
        """`data` begins with the first message, wherever `offsets` (as stored, or read) begin."""
        self.queue = queue
        self.partition = partition
        self.partition_id = partition_id
        self.first_seq = first_seq
        self.count = count
        self.created_at = created_at
        self._data = data
        self._offsets = offsets
        self.transaction_ids = transaction_ids
        self.trace_ids = trace_ids
        self.producers = producers
        self.headers = headers

    @property
    def has_metadata(self) -> bool:
        """Whether there is anything in a message that `walk` does not tell."""
        return not (self.trace_ids is None and self.producers is None and self.headers is None)

    def payloads(self) -> list[bytes]:
        return list(self.each_payload())

    def each_payload(self) -> Iterator[bytes]:
        """Made one by one: whoever only walks over them needs the memory of one."""
        if self.count == 1:
            return iter((self._data,))
        offsets = self._offsets
        if isinstance(offsets, bytes):
            offsets = segments.from_bytes(offsets)
        return segments.unpacked(self._data, offsets)

    def ids(self) -> list[str]:
        """Transaction ids; a message without one of its own has its id."""
        given = self.transaction_ids
        if given is None:
            return message_ids(self.partition_id, self.first_seq, self.count)
        prefix = f"{self.partition_id}-"
        return [one or f"{prefix}{seq}" for seq, one in zip(self.seqs(), given, strict=True)]

    def seqs(self) -> range:
        return range(self.first_seq, self.first_seq + self.count)

    def walk(self) -> Iterator[Walked]:
        return zip(self.seqs(), self.ids(), self.each_payload(), strict=True)

    def messages(self) -> Iterator[Message]:
        nothing = repeat(None, self.count)
        return map(
            Message,
            repeat(self.queue),
            repeat(self.partition),
            repeat(self.partition_id),
            self.seqs(),
            self.ids(),
            self.payloads(),
            repeat(self.created_at),
            repeat(1),
            nothing if self.trace_ids is None else self.trace_ids,
            repeat(None) if self.producers is None else self.producers,
            repeat(None) if self.headers is None else self.headers,
        )


class MessageList(Sequence[Message]):
    """The messages of some runs, in order."""

    __slots__ = ("_count", "_made", "runs")

    def __init__(self, runs: Sequence[MessageRun]) -> None:
        self.runs = runs
        self._count = sum([run.count for run in runs])
        self._made: list[Message] | None = None

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> Message: ...

    @overload
    def __getitem__(self, index: slice) -> list[Message]: ...

    def __getitem__(self, index: int | slice) -> Message | list[Message]:
        return self._all()[index]

    def __iter__(self) -> Iterator[Message]:
        return iter(self._all())

    def __eq__(self, other: object) -> bool:
        if isinstance(other, MessageList | list | tuple):
            return self._all() == list(other)
        return NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return repr(self._all())

    def walk(self) -> Iterator[Walked]:
        return chain.from_iterable(run.walk() for run in self.runs)

    def _all(self) -> list[Message]:
        if self._made is None:
            self._made = [message for run in self.runs for message in run.messages()]
        return self._made


def walk(messages: Iterable[Message]) -> Iterator[Walked]:
    """Seq, transaction id and payload of each, made as cheaply as what was popped allows."""
    if isinstance(messages, MessageList):
        return messages.walk()
    return ((message.seq, message.transaction_id, message.payload) for message in messages)
