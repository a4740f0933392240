"""What was set aside, for a person to look at and put back.

Putting back is writing to the buffer again: whichever broker serves the store adopts it within
seconds. What reached the store meanwhile is known there by its transaction ids. Blocks; made for
the command line, and never called by a broker.
"""

from __future__ import annotations

import asyncio
import os
import re
import uuid
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from monarq.broker.buffer_records import (
    Entry,
    Frame,
    UnreadableRecordError,
    decode_entry,
    read_frame,
)
from monarq.broker.push_buffer import PushBuffer
from monarq.broker.set_aside import DIRECTORY, POISON, UNREADABLE, read_poison
from monarq.crypto import Cipher
from monarq.errors import EncryptionKeyError, NotFoundError
from monarq.model import Push

_SALT = re.compile(r"\.([0-9a-f]{8})(?:\.\d+)?\.unreadable", re.ASCII)
_RECORD_PUSHES = 100


class SetAsideFile(Struct, frozen=True, kw_only=True):
    name: str
    bytes: int
    pushes: int
    """That can be read, with the keys that were given."""
    unreadable_bytes: int
    reason: str
    """Of the first of them."""


class Requeued(Struct, frozen=True):
    pushes: int
    unreadable_bytes: int
    """What could not be put back; the file stays if there is any."""


def list_files(directory: Path, cipher: Cipher | None) -> list[SetAsideFile]:
    place = directory / DIRECTORY
    paths = sorted(place.iterdir()) if place.is_dir() else []
    return [_describe(path, cipher) for path in paths]


def read_file(directory: Path, name: str, cipher: Cipher | None) -> Iterator[tuple[str, Push]]:
    """Each push of a file, and why it was set aside."""
    path = _find(directory, name)
    if path.name.endswith(POISON):
        for line, push in read_poison(path, cipher):
            yield f"{line.code}: {line.reason}", push
    else:
        for found in _read_unreadable(path, cipher):
            if isinstance(found, Entry):
                for push in found.pushes:
                    yield "it could not be read", push


def requeue(directory: Path, name: str, *, store: str, cipher: Cipher | None) -> Requeued:
    """Write the pushes of a file to the buffer, and then remove the file."""
    path = _find(directory, name)
    pushes = [push for _, push in read_file(directory, name, cipher)]
    unreadable = _unreadable_bytes(path, cipher)
    asyncio.run(_append(directory, pushes, store, cipher))
    if not unreadable:
        path.unlink()
    return Requeued(len(pushes), unreadable)


async def _append(directory: Path, pushes: list[Push], store: str, cipher: Cipher | None) -> None:
    buffer = await PushBuffer.open(directory, store=store, cipher=cipher)
    try:
        for start in range(0, len(pushes), _RECORD_PUSHES):
            await buffer.append(uuid.uuid4().hex, pushes[start : start + _RECORD_PUSHES])
    finally:
        await buffer.close()


def _describe(path: Path, cipher: Cipher | None) -> SetAsideFile:
    pushes, reason = 0, ""
    try:
        for found, _ in read_file(path.parent.parent, path.name, cipher):
            reason = reason or found
            pushes += 1
    except EncryptionKeyError as error:
        reason = str(error)
    return SetAsideFile(
        name=path.name,
        bytes=path.stat().st_size,
        pushes=pushes,
        unreadable_bytes=_unreadable_bytes(path, cipher),
        reason=reason,
    )


def _find(directory: Path, name: str) -> Path:
    path = directory / DIRECTORY / name
    if Path(name).name != name or not path.is_file() or not name.endswith((POISON, UNREADABLE)):
        raise NotFoundError(f"there is no {name!r} in {directory / DIRECTORY}")
    return path


def _unreadable_bytes(path: Path, cipher: Cipher | None) -> int:
    if path.name.endswith(POISON):
        return 0
    return sum(found for found in _read_unreadable(path, cipher) if isinstance(found, int))


def _read_unreadable(path: Path, cipher: Cipher | None) -> Iterator[Entry | int]:
    """What can be read after all (the key may be there now), or how many bytes cannot."""
    match = _SALT.search(path.name)
    size = path.stat().st_size
    if match is None:
        yield size
        return
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        offset = 0
        while (found := read_frame(file, offset, size, int(match[1], 16))) is not None:
            yield _decoded(found, cipher) if isinstance(found, Frame) else found.end - found.start
            offset = found.end
    finally:
        os.close(file)


def _decoded(frame: Frame, cipher: Cipher | None) -> Entry | int:
    try:
        return decode_entry(frame, cipher)
    except (UnreadableRecordError, EncryptionKeyError):
        return frame.end - frame.start
