"""One numbered subdirectory of the push buffer: files that one process appends to and reads back.

    lock                              held (flock) by the process that owns the subdirectory
    position                          up to where all records have been replayed
    <number>.<made at>.<salt>.buffer  records, oldest file first

A file is removed when all its records have been replayed, so `position` only spares work: records
behind it that are read again are known to the store by their mark and transaction ids.

Everything here blocks; it is called from one thread at a time. Knows nothing of the store.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import re
import secrets
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import msgspec
from msgspec import Struct

from monarq import private_files
from monarq.broker.buffer_records import Frame, Gap, read_frame
from monarq.clock import Clock

log = logging.getLogger("monarq.buffer")

LOCK = "lock"
POSITION = "position"
_FILE_NAME = re.compile(r"(\d{10})\.(\d{1,20})\.([0-9a-f]{8})\.buffer", re.ASCII)


class Owner(Struct, frozen=True):
    """What the lock file says, for people and for those who would adopt the subdirectory."""

    store: str
    """Which one the records are for."""


class _Position(Struct, frozen=True):
    file: str
    """Its whole name: a number alone is used again after the files are gone."""
    offset: int


@dataclass(slots=True)
class BufferFile:
    path: Path
    number: int
    made_at: int
    salt: int
    size: int
    """Up to where it is known to be durable."""

    @classmethod
    def from_path(cls, path: Path) -> BufferFile | None:
        match = _FILE_NAME.fullmatch(path.name)
        if match is None:
            return None
        return cls(path, int(match[1]), int(match[2]), int(match[3], 16), path.stat().st_size)


class FileTroubleError(Exception):
    """A file cannot be read (the disk, or its permissions); `file` is left as it is."""

    def __init__(self, file: BufferFile, cause: OSError) -> None:
        super().__init__(f"{file.path.name}: {cause.strerror or cause}")
        self.file = file


class Journal:
    """See the module. Made by `claim`."""

    def __init__(self, directory: Path, lock: int, clock: Clock) -> None:
        self.directory = directory
        self._lock = lock
        self._clock = clock
        self.files: deque[BufferFile] = deque(
            sorted(
                filter(None, map(BufferFile.from_path, directory.iterdir())),
                key=lambda file: file.number,
            )
        )
        self.last_number = self.files[-1].number if self.files else 0
        self._writing: int | None = None
        self._reading: tuple[int, int] | None = None
        self.offset = 0
        self._saved = self._load_position()

    @classmethod
    def claim(cls, directory: Path, *, store: str, clock: Clock) -> Self | None:
        """Take the subdirectory, unless another process has it, or it is for another store."""
        try:
            lock = private_files.open_file(directory / LOCK, os.O_RDWR | os.O_CREAT)
        except FileNotFoundError:  # removed meanwhile
            return None
        try:
            if _take_lock(lock, directory) and _take_over(lock, store):
                return cls(directory, lock, clock)
        except BaseException:
            os.close(lock)
            raise
        os.close(lock)
        return None

    # --- writing -----------------------------------------------------------------------

    def writable_file(self, file_bytes: int) -> BufferFile:
        """The file that the next records go to; they are made with its salt."""
        if self._writing is None or self.files[-1].size >= file_bytes:
            return self._start_file()
        return self.files[-1]

    def append(self, records: Sequence[bytes]) -> None:
        """Write to the writable file; durable when it returns. On an OSError none of it is
        kept, and what was there before is as it was."""
        file, fd = self.files[-1], self._writing
        assert fd is not None
        try:
            write_all(fd, records)
            os.fdatasync(fd)
        except OSError:
            self._cut(file)
            raise
        file.size += sum(map(len, records))

    def _start_file(self) -> BufferFile:
        self._stop_writing()
        number = self.last_number + 1
        made_at, salt = self._clock.now(), secrets.randbits(32)
        path = self.directory / f"{number:010}.{made_at}.{salt:08x}.buffer"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND
        fd = private_files.open_file(path, flags)
        try:
            sync_directory(self.directory)
        except OSError:
            os.close(fd)
            path.unlink(missing_ok=True)
            raise
        self._writing, self.last_number = fd, number
        file = BufferFile(path, number, made_at, salt, 0)
        self.files.append(file)
        return file

    def _cut(self, file: BufferFile) -> None:
        """After a failed write: back to the last whole record. What a failed fsync leaves
        behind is unknown, so nothing more is written to this file."""
        fd = self._writing
        assert fd is not None
        try:
            os.ftruncate(fd, file.size)
            os.fsync(fd)
        except OSError as error:
            log.error("the buffer file %s could not be cut back: %s", file.path, error)
        self._stop_writing()
        if file.size == 0:
            self.files.remove(file)
            with contextlib.suppress(OSError):
                file.path.unlink(missing_ok=True)

    def _stop_writing(self) -> None:
        if self._writing is not None:
            os.close(self._writing)
            self._writing = None

    # --- reading -----------------------------------------------------------------------

    @property
    def unread_bytes(self) -> int:
        return sum(file.size for file in self.files) - (self.offset if self.files else 0)

    def read(self, ahead: int = 0) -> tuple[BufferFile, Frame | Gap] | None:
        """The record or gap that is `ahead` bytes behind the position, within its file; None
        at the end of that file."""
        if not self.files:
            return None
        file = self.files[0]
        try:
            fd = self._open_for_reading(file)
            found = read_frame(fd, self.offset + ahead, file.size, file.salt)
        except OSError as error:
            raise FileTroubleError(file, error) from error
        return None if found is None else (file, found)

    def raw(self, gap: Frame | Gap) -> bytes:
        """The bytes of a record or gap of the first file."""
        file = self.files[0]
        try:
            return os.pread(self._open_for_reading(file), gap.end - gap.start, gap.start)
        except OSError as error:
            raise FileTroubleError(file, error) from error

    def advance(self, offset: int) -> None:
        """All of the first file up to `offset` is replayed or set aside."""
        self.offset = offset

    def finish_file(self) -> bool:
        """Remove the first file if it is replayed to its end; whether it was."""
        if not self.files or self.offset < self.files[0].size:
            return False
        path = self.files[0].path
        self.forget_file()
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            log.error("%s is replayed and cannot be removed: %s", path, error)
        return True

    def forget_file(self) -> None:
        """Go on with the next file, whatever is left in the first."""
        if len(self.files) == 1:
            self._stop_writing()
        self._stop_reading()
        self.files.popleft()
        self.offset = 0

    def save_position(self) -> None:
        now = _Position(self.files[0].path.name, self.offset) if self.files else None
        if now is None or now == self._saved or now.offset == 0:
            return
        write_whole(self.directory / POSITION, msgspec.json.encode(now))
        self._saved = now

    def _load_position(self) -> _Position | None:
        try:
            found = msgspec.json.decode((self.directory / POSITION).read_bytes(), type=_Position)
        except (OSError, msgspec.MsgspecError):
            return None
        if self.files and self.files[0].path.name == found.file:
            self.offset = min(max(0, found.offset), self.files[0].size)
        return found

    def _open_for_reading(self, file: BufferFile) -> int:
        if self._reading is not None and self._reading[0] == file.number:
            return self._reading[1]
        self._stop_reading()
        fd = os.open(file.path, os.O_RDONLY | os.O_CLOEXEC)
        self._reading = (file.number, fd)
        return fd

    def _stop_reading(self) -> None:
        if self._reading is not None:
            os.close(self._reading[1])
            self._reading = None

    # --- the end -----------------------------------------------------------------------

    def close(self) -> None:
        """Let go of it; what is in it can be adopted by others from now on."""
        self._stop_writing()
        self._stop_reading()
        os.close(self._lock)

    def remove(self) -> None:
        """Let go of an empty one, and remove it."""
        self._stop_writing()
        self._stop_reading()
        with contextlib.suppress(OSError):
            (self.directory / POSITION).unlink(missing_ok=True)
            (self.directory / LOCK).unlink(missing_ok=True)
            self.directory.rmdir()
        os.close(self._lock)


def write_whole(path: Path, data: bytes) -> None:
    """Replace a file at once: after a crash there is the old one or the new one."""
    draft = path.with_name(f"{path.name}.new")
    fd = private_files.open_file(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    try:
        write_all(fd, [data])
        os.fsync(fd)
    finally:
        os.close(fd)
    draft.replace(path)
    sync_directory(path.parent)


def sync_directory(directory: Path) -> None:
    """Make the names in it durable."""
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def write_all(fd: int, pieces: Sequence[bytes]) -> None:
    data = memoryview(b"".join(pieces) if len(pieces) > 1 else pieces[0])
    while data:
        data = data[os.write(fd, data) :]


def read_owner(directory: Path) -> Owner | None:
    """Whose subdirectory it is or was, if that can be told."""
    try:
        return _decode_owner((directory / LOCK).read_bytes())
    except OSError:
        return None


def _take_lock(lock: int, directory: Path) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # Its last owner may have removed it between our open and our lock.
        return os.fstat(lock).st_ino == (directory / LOCK).stat().st_ino
    except (BlockingIOError, FileNotFoundError):
        return False


def _take_over(lock: int, store: str) -> bool:
    """Whether it is for this store. Written in place (the lock is on this very file), and only
    where it says nothing yet, so that a full disk does not keep anyone from its records."""
    owner = _decode_owner(os.pread(lock, 4096, 0))
    if owner is None:
        os.ftruncate(lock, 0)
        os.pwrite(lock, msgspec.json.encode(Owner(store)) + b"\n", 0)
        os.fsync(lock)
        return True
    return owner.store == store


def _decode_owner(data: bytes) -> Owner | None:
    try:
        return msgspec.json.decode(data, type=Owner)
    except msgspec.MsgspecError:
        return None
