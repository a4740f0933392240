"""`monarq export` and `monarq import`: queues as lines of JSON.

The first line of each queue says what it is; then comes a line for each message or item. A message
that was pushed without a transaction id gets one made of its place and time, so that importing the
same file again stores nothing twice, and its id cannot be taken for that of another message.
"""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from monarq import private_files
from monarq.cli.calling import Caller, calling, say
from monarq.cli.feeding import Progress, numbered_lines
from monarq.cli.queues import all_queues, find_queue
from monarq.errors import ConflictError, InvalidRequestError, MonarqError, NotFoundError
from monarq.model import (
    ConfiguredQueue,
    Item,
    ItemState,
    Push,
    PushItem,
    PushStatus,
    QueueInfo,
    QueueKind,
    QueueOptions,
    StoredMessage,
)
from monarq.model.pages import all_rows

if TYPE_CHECKING:
    from monarq.client.client import Client

_AT_ONCE = 500
_VERSION = 1
# msgspec reads `Raw | None` as None alone.
_NO_HEADERS = msgspec.Raw()
_UNFINISHED = (ItemState.READY, ItemState.SCHEDULED, ItemState.LEASED)


def add_to(app: typer.Typer) -> None:
    panel = "Queues and messages"
    app.command("export", rich_help_panel=panel)(calling(export))
    app.command("import", rich_help_panel=panel)(calling(import_lines))


class QueueLine(msgspec.Struct, frozen=True, kw_only=True, rename="camel", tag="queue"):
    """Begins a queue."""

    queue: str
    kind: QueueKind
    namespace: str = ""
    task: str = ""
    options: dict[str, Any] = {}
    paused: bool = False
    version: int = _VERSION


class MessageLine(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", tag="message", omit_defaults=True
):
    """A message, or an item that is not finished."""

    queue: str
    transaction_id: str
    payload: msgspec.Raw
    partition: str | None = None
    seq: int | None = None
    created_at: int | None = None
    trace_id: str | None = None
    headers: msgspec.Raw = _NO_HEADERS
    priority: int | None = None
    run_at: int | None = None
    max_attempts: int | None = None
    backoff_base: float | None = None
    producer: str | None = None
    attempts: int | None = None


# --- export --------------------------------------------------------------------------------


def export(
    caller: Caller,
    queues: Annotated[
        list[str] | None,
        typer.Argument(metavar="[QUEUE]...", help="which; all, if none is named"),
    ] = None,
    file: Annotated[
        str, typer.Option("--file", "-f", help="write to this file; - is stdout")
    ] = "-",
) -> None:
    """Write queues as lines of JSON: messages, and items that are not finished.

    Nothing is consumed. Lines go to stdout, with or without --json.
    """
    with caller.client(only_looks=True) as client, _output(file) as output:
        chosen = (
            [find_queue(client, name) for name in queues] if queues else list(all_queues(client))
        )
        # An import makes the queues in this order, and a deadQueue has to be there first.
        chosen.sort(key=lambda queue: bool(queue.options.dead_queue))
        with Progress("exported") as progress:
            for queue in chosen:
                _write(output, _queue_line(queue))
                lines = _items(client, queue) if _is_work(queue) else _messages(client, queue)
                for line in lines:
                    _write(output, line)
                    progress.add(1)
    if file == "-":
        say(f"exported {progress.count:,} from {len(chosen):,} queues")
    else:
        value = {"file": file, "queues": len(chosen), "exported": progress.count}
        caller.answer(value, f"exported {progress.count:,} from {len(chosen):,} queues to {file}")


@contextmanager
def _output(file: str) -> Iterator[IO[bytes]]:
    if file == "-":
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    try:
        descriptor = private_files.open_file(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        with os.fdopen(descriptor, "wb") as output:
            yield output
    except OSError as error:
        raise InvalidRequestError(f"cannot write {file}: {error.strerror}") from None


def _write(output: IO[bytes], line: msgspec.Struct) -> None:
    output.write(msgspec.json.encode(line))
    output.write(b"\n")


def _is_work(queue: QueueInfo) -> bool:
    return queue.kind is QueueKind.WORK


def _queue_line(queue: QueueInfo) -> QueueLine:
    options, defaults = msgspec.to_builtins(queue.options), msgspec.to_builtins(QueueOptions())
    return QueueLine(
        queue=queue.name,
        kind=queue.kind,
        namespace=queue.namespace,
        task=queue.task,
        options={key: value for key, value in options.items() if value != defaults[key]},
        paused=queue.paused,
    )


def _messages(client: Client, queue: QueueInfo) -> Iterator[MessageLine]:
    messages = all_rows(
        lambda limit, after: client.admin.list_messages(queue.name, limit=limit, after=after)
    )
    # A message whose payload was deleted is kept from everyone.
    return (_message_line(message) for message in messages if message.payload)


def _message_line(message: StoredMessage) -> MessageLine:
    return MessageLine(
        queue=message.queue,
        transaction_id=_own_id(message),
        payload=msgspec.Raw(message.payload),
        partition=message.partition,
        seq=message.seq,
        created_at=int(message.created_at),
        trace_id=message.trace_id,
        headers=_NO_HEADERS if message.headers is None else msgspec.Raw(message.headers),
        producer=message.producer,
    )


def _items(client: Client, queue: QueueInfo) -> Iterator[MessageLine]:
    for state in _UNFINISHED:
        yield from map(_item_line, _items_in(client, queue.name, state))


def _items_in(client: Client, queue: str, state: ItemState) -> Iterator[Item]:
    return all_rows(
        lambda limit, after: client.admin.list_items(queue, state=state, limit=limit, after=after)
    )


def _item_line(item: Item) -> MessageLine:
    return MessageLine(
        queue=item.queue,
        transaction_id=_own_id(item),
        payload=msgspec.Raw(item.payload),
        created_at=int(item.created_at),
        trace_id=item.trace_id,
        headers=_NO_HEADERS if item.headers is None else msgspec.Raw(item.headers),
        priority=item.priority,
        run_at=None if item.run_at is None else int(item.run_at),
        max_attempts=item.max_attempts,
        backoff_base=item.backoff_base,
        producer=item.producer,
        # An attempt that is under way is not used up: the import delivers the item again.
        attempts=item.attempts - (item.state is ItemState.LEASED) or None,
    )


def _own_id(kept: StoredMessage | Item) -> str:
    if kept.transaction_id != kept.id:
        return kept.transaction_id
    return f"{kept.id}@{kept.created_at}"


# --- import --------------------------------------------------------------------------------


def import_lines(
    caller: Caller,
    file: Annotated[str, typer.Argument(help="a file that export wrote; - is stdin")],
    to: Annotated[
        str | None, typer.Option("--to", help="into this queue, not those in the file")
    ] = None,
) -> None:
    """Push what export wrote. Doing it again stores nothing twice.

    Queues that are not there are made with the options that they had, paused if they were.
    Messages keep their producer and items the attempts that they have used up; a broker lets only
    an admin import.
    """
    totals = {"imported": 0, "duplicates": 0}
    with caller.client() as client, Progress("imported") as progress:
        targets = _Targets(client, to)
        lines = _read(file)
        while step := list(itertools.islice(lines, _AT_ONCE)):
            try:
                _import_step(client, targets, [line for _, line in step], totals)
            except MonarqError as error:
                error.add_note(
                    f"{sum(totals.values()):,} were imported before line {step[0][0]}; "
                    "import the file again when that is mended"
                )
                raise
            progress.add(len(step))
    known = f", {totals['duplicates']:,} were there already" if totals["duplicates"] else ""
    caller.answer(totals, f"imported {totals['imported']:,}{known}")


def _read(file: str) -> Iterator[tuple[int, QueueLine | MessageLine]]:
    decoder = msgspec.json.Decoder(QueueLine | MessageLine)
    for number, text in numbered_lines(file):
        try:
            yield number, decoder.decode(text)
        except msgspec.DecodeError as error:
            raise InvalidRequestError(
                f"line {number} is not one that `monarq export` writes: {error}"
            ) from None


def _import_step(
    client: Client,
    targets: _Targets,
    lines: list[QueueLine | MessageLine],
    totals: dict[str, int],
) -> None:
    """In the order of the lines; those that are pushed alike in one go."""
    for line in lines:
        if isinstance(line, QueueLine):
            targets.begin(line)
    messages = [line for line in lines if isinstance(line, MessageLine)]
    for (commands, producer), group in itertools.groupby(messages, key=targets.kind_of_push):
        items = [targets.item(line) for line in group]
        for pushed in client.admin.restore(Push(items, producer, commands)):
            is_new = pushed.status is not PushStatus.DUPLICATE
            totals["imported" if is_new else "duplicates"] += 1


class _Targets:
    """The queues that are imported into, looked up or made once each."""

    def __init__(self, client: Client, to: str | None) -> None:
        self._client = client
        self._to = to
        self._known: dict[str, ConfiguredQueue | QueueInfo | None] = {}

    def begin(self, line: QueueLine) -> None:
        if line.version > _VERSION:
            raise InvalidRequestError(
                f"the file was written by a newer Monarq (format {line.version})"
            )
        name = self._to or line.queue
        there = self._find(name)
        if there is None:
            there = self._client.admin.configure(
                name,
                kind=line.kind,
                namespace=line.namespace or None,
                task=line.task or None,
                options=line.options,
            )
            if line.paused:
                self._client.admin.pause_queue(name)
        if there.kind is not line.kind:
            raise ConflictError(
                f"{name!r} is of kind {there.kind}, and {line.queue!r} in the file is of kind "
                f"{line.kind}; --to imports into another queue"
            )
        self._known[name] = there

    def _find(self, name: str) -> ConfiguredQueue | QueueInfo | None:
        if name not in self._known:
            try:
                self._known[name] = self._client.admin.get_queue(name)
            except NotFoundError:
                self._known[name] = None
        return self._known[name]

    def kind_of_push(self, line: MessageLine) -> tuple[bool, str | None]:
        """Return whether a line is a command, and its producer: what a push has but once."""
        queue = self._find(self._to or line.queue)
        return queue is not None and queue.options.runs_commands, line.producer

    def item(self, line: MessageLine) -> PushItem:
        item = PushItem(
            self._to or line.queue,
            bytes(line.payload),
            transaction_id=line.transaction_id,
            trace_id=line.trace_id,
            headers=None if bytes(line.headers) in (b"", b"null") else bytes(line.headers),
            priority=line.priority,
            run_at=line.run_at,
            max_attempts=line.max_attempts,
            backoff_base=line.backoff_base,
            attempts=line.attempts,
        )
        if line.partition is None:
            return item
        return msgspec.structs.replace(item, partition=line.partition)
