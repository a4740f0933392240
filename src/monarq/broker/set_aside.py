"""What the buffer could not replay, kept where a person finds it: the directory `set-aside`.

    *.poison       pushes that the store refused: a line of JSON each, with the reason; `items` is
                   what `POST /api/v1/push` takes
    *.unreadable   bytes that are no record (any more), or whole files that cannot be read

Nothing here is ever deleted or replayed by itself. Everything blocks.
"""

from __future__ import annotations

import base64
import logging
import os
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

import msgspec
from msgspec import Raw, Struct

from monarq import private_files
from monarq.broker.journal import sync_directory, write_all
from monarq.clock import SECOND
from monarq.crypto import BUFFERED, Cipher
from monarq.errors import EncryptionKeyError
from monarq.model import DEFAULT_PARTITION, Push, PushItem

log = logging.getLogger("monarq.buffer")

DIRECTORY = "set-aside"
POISON = ".poison"
UNREADABLE = ".unreadable"
_NULL = Raw(b"null")


class ReadableItem(Struct, frozen=True, rename="camel", omit_defaults=True):
    """A `PushItem` with its JSON as JSON (without line breaks); as base64 if it is none."""

    queue: str
    payload: Raw = _NULL
    payload_base64: str | None = None
    partition: str = DEFAULT_PARTITION
    transaction_id: str | None = None
    trace_id: str | None = None
    namespace: str | None = None
    task: str | None = None
    headers: Raw = _NULL
    priority: int | None = None
    run_at: str | None = None
    delay_seconds: float | None = None
    max_attempts: int | None = None
    backoff_base: float | None = None
    attempts: int | None = None


class SetAsidePush(Struct, frozen=True, rename="camel", omit_defaults=True, kw_only=True):
    """One line of a `*.poison` file. With encryption keys, the items are in `sealed`."""

    reason: str
    code: str
    at: str
    mark: str
    index: int
    """Which push of its record it was; with `mark` it tells repeats after a crash."""
    queues: list[str]
    producer: str | None = None
    commands: bool = False
    items: list[ReadableItem] | None = None
    sealed: str | None = None


class SetAside:
    """Writes to the directory, and knows what is in it."""

    def __init__(self, directory: Path, cipher: Cipher | None) -> None:
        self.directory = directory
        self._cipher = cipher
        self.names: list[str] = []
        self.look()

    def look(self) -> None:
        """Note what is there now: a person may have removed what was dealt with."""
        try:
            self.names = sorted(path.name for path in self.directory.iterdir())
        except FileNotFoundError:
            self.names = []

    def add_pushes(self, source: str, refused: Sequence[tuple[SetAsidePush, Push]]) -> str:
        """Durable when it returns; the name of the file that they are in."""
        name = f"{source}{POISON}"
        is_new = name not in self.names
        lines = [msgspec.json.encode(self._with_items(line, push)) for line, push in refused]
        self._append(name, b"".join(line + b"\n" for line in lines))
        first = refused[0][0]
        # Many may follow for the same reason: one line a file is enough to be noticed.
        log.log(
            logging.ERROR if is_new else logging.INFO,
            "set aside %d pushes in %s; the first is to %s: %s",
            len(refused),
            name,
            ", ".join(first.queues),
            first.reason,
        )
        return name

    def _with_items(self, line: SetAsidePush, push: Push) -> SetAsidePush:
        items = [readable(item) for item in push.items]
        if self._cipher is None:
            return msgspec.structs.replace(line, items=items)
        sealed = self._cipher.seal(msgspec.json.encode(items), BUFFERED)
        return msgspec.structs.replace(line, sealed=base64.b64encode(sealed).decode())

    def add_bytes(self, source: str, offset: int, data: bytes, reason: str) -> str:
        name = f"{source}.{offset}{UNREADABLE}"
        self._append(name, data, replace=True)
        log.error("set aside %d bytes of the buffer in %s: %s", len(data), name, reason)
        return name

    def add_file(self, source: str, path: Path, reason: str) -> str:
        self._make()
        name = f"{source}{UNREADABLE}"
        path.replace(self.directory / name)
        sync_directory(self.directory)
        self.look()
        log.error("set aside the buffer file %s as %s: %s", path, name, reason)
        return name

    def _append(self, name: str, data: bytes, *, replace: bool = False) -> None:
        self._make()
        path = self.directory / name
        mode = os.O_TRUNC if replace else os.O_APPEND
        fd = private_files.open_file(path, os.O_WRONLY | os.O_CREAT | mode)
        try:
            size = os.fstat(fd).st_size
            try:
                write_all(fd, [data])
                os.fsync(fd)
            except OSError:
                os.ftruncate(fd, size)
                raise
        finally:
            os.close(fd)
        if name not in self.names:
            sync_directory(self.directory)
            self.look()

    def _make(self) -> None:
        if not self.directory.is_dir():
            private_files.make_directory(self.directory)
            sync_directory(self.directory.parent)


def read_poison(path: Path, cipher: Cipher | None = None) -> Iterator[tuple[SetAsidePush, Push]]:
    """The pushes of a `*.poison` file, each once, as they were before they were refused."""
    seen: set[tuple[str, int]] = set()
    with path.open("rb") as file:
        for text in file:
            try:
                line = msgspec.json.decode(text, type=SetAsidePush)
            except msgspec.MsgspecError:
                log.warning("%s has a line that is no push", path.name)
                continue
            if (line.mark, line.index) in seen:
                continue
            seen.add((line.mark, line.index))
            yield line, Push(_items(line, cipher), line.producer, line.commands)


def readable(item: PushItem) -> ReadableItem:
    """As a person reads it."""
    payload, coded = _NULL, None
    try:
        payload = Raw(msgspec.json.format(item.payload, indent=-1))
    except msgspec.DecodeError:
        coded = base64.b64encode(item.payload).decode()
    return ReadableItem(
        queue=item.queue,
        payload=payload,
        payload_base64=coded,
        partition=item.partition,
        transaction_id=item.transaction_id,
        trace_id=item.trace_id,
        namespace=item.namespace,
        task=item.task,
        headers=_compact_headers(item.headers),
        priority=item.priority,
        run_at=None if item.run_at is None else time_text(item.run_at),
        delay_seconds=item.delay_seconds,
        max_attempts=item.max_attempts,
        backoff_base=item.backoff_base,
        attempts=item.attempts,
    )


def _compact_headers(headers: bytes | None) -> Raw:
    """Headers that are no JSON are part of why a push was refused: they are left out."""
    try:
        return _NULL if headers is None else Raw(msgspec.json.format(headers, indent=-1))
    except msgspec.DecodeError:
        return _NULL


def _items(line: SetAsidePush, cipher: Cipher | None) -> list[PushItem]:
    items = line.items
    if line.sealed is not None:
        if cipher is None:
            raise EncryptionKeyError("this push was encrypted: give the encryption keys")
        opened = cipher.open(base64.b64decode(line.sealed), BUFFERED)
        items = msgspec.json.decode(opened, type=list[ReadableItem])
    return [_restored(item) for item in items or ()]


def _restored(item: ReadableItem) -> PushItem:
    coded = item.payload_base64
    return PushItem(
        queue=item.queue,
        payload=bytes(item.payload) if coded is None else base64.b64decode(coded),
        partition=item.partition,
        transaction_id=item.transaction_id,
        trace_id=item.trace_id,
        namespace=item.namespace,
        task=item.task,
        headers=None if item.headers == _NULL else bytes(item.headers),
        priority=item.priority,
        run_at=None if item.run_at is None else _time_number(item.run_at),
        delay_seconds=item.delay_seconds,
        max_attempts=item.max_attempts,
        backoff_base=item.backoff_base,
        attempts=item.attempts,
    )


def time_text(micros: int) -> str:
    moment = datetime.fromtimestamp(micros // SECOND, UTC).replace(microsecond=micros % SECOND)
    return moment.isoformat(timespec="microseconds").replace("+00:00", "Z")


def _time_number(text: str) -> int:
    moment = datetime.fromisoformat(text)
    return int(moment.replace(microsecond=0).timestamp()) * SECOND + moment.microsecond
