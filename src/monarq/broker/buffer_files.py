"""The directory of the push buffer, as one process sees it: its own subdirectory, and those that it
adopted from processes that are gone.

Everything here blocks, and is called from one thread at a time (that of `push_buffer`). Only
`state` may be read from elsewhere: it is replaced, never changed.
"""

from __future__ import annotations

import logging
import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from msgspec import Struct

from monarq import private_files
from monarq.broker.buffer_records import (
    Entry,
    Frame,
    Gap,
    GapKind,
    UnreadableRecordError,
    decode_entry,
    encode_entry,
)
from monarq.broker.journal import BufferFile, FileTroubleError, Journal, write_all
from monarq.broker.set_aside import DIRECTORY, SetAside, SetAsidePush, time_text
from monarq.broker.subdirectories import Subdirectories
from monarq.clock import Clock
from monarq.crypto import Cipher
from monarq.errors import BufferWriteError, EncryptionKeyError, MonarqError
from monarq.model import Push

log = logging.getLogger("monarq.buffer")

SAVE_SECONDS = 0.5
"""How often the position is written down while records are replayed."""


class BufferState(Struct, frozen=True, kw_only=True):
    bytes: int = 0
    """Not replayed yet."""
    files: int = 0
    records: int = 0
    """Not replayed yet, of those that this process wrote."""
    oldest_at: int | None = None
    """When the first file that is not replayed was begun."""
    set_aside: list[str] = []
    """Files in `set-aside`: what could not be replayed."""
    others: list[str] = []
    """Subdirectories with records for another store, which this process does not replay."""
    failing: str | None = None
    """Why the last append failed, if it did and still would."""


class Record(Struct, frozen=True):
    """One record to replay; goes back to `done` when it is."""

    entry: Entry
    journal: Journal
    source: str
    start: int
    end: int
    is_fresh: bool
    """Whether this process wrote it."""


Refusal = tuple[Record, int, MonarqError]
"""A push (its record, and which one of that record's it is), and why it cannot be replayed."""


class BufferFiles:
    """See the module."""

    def __init__(
        self,
        directory: Path,
        *,
        store: str,
        cipher: Cipher | None,
        file_bytes: int,
        max_bytes: int,
        clock: Clock,
    ) -> None:
        self.directory = directory
        self.state = BufferState()
        self._cipher = cipher
        self._file_bytes = file_bytes
        self._max_bytes = max_bytes
        self._clock = clock
        self._adopted: list[Journal] = []
        self._records = 0
        self._failing: str | None = None
        self._trial_bytes = 0
        """What the last append had to write, or had no room for."""
        self._saved_at = 0.0
        try:
            private_files.make_directory(directory)
            private_files.restrict(directory.resolve())
            self._aside = SetAside(directory / DIRECTORY, cipher)
            self._places = Subdirectories(directory, store=store, clock=clock)
            self._own = self._places.claim_own()
            self._first_number = self._own.last_number + 1
            self.adopt()
        except OSError as error:
            raise BufferWriteError(
                f"the push buffer cannot use the directory {directory}: "
                f"{error.strerror or error}; set data_dir, or do without (buffer_enabled)"
            ) from error

    # --- writing -----------------------------------------------------------------------

    def append(self, entries: Sequence[Entry]) -> list[BufferWriteError | None]:
        """Write them down with one fsync; what became of each, in order."""
        try:
            answers = self._append_together(entries)
        except OSError as error:
            if len(entries) > 1:  # there may be room for some of them
                return [self.append([entry])[0] for entry in entries]
            answers = [self._write_error(error)]
        self._failing = next((str(answer) for answer in reversed(answers) if answer), None)
        self._publish()
        return answers

    def _append_together(self, entries: Sequence[Entry]) -> list[BufferWriteError | None]:
        salt = self._own.writable_file(self._file_bytes).salt
        room = self._room()
        records: list[bytes] = []
        answers: list[BufferWriteError | None] = []
        refused = 0
        for entry in entries:
            try:
                record = encode_entry(entry, salt, self._cipher)
            except (ValueError, TypeError, OverflowError) as error:
                answers.append(BufferWriteError(f"the push cannot be written down: {error}"))
                continue
            if len(record) > room and len(record) > (room := self._room(look=True)):
                answers.append(
                    BufferWriteError(
                        f"the push buffer holds its {self._max_bytes} bytes (buffer_max_bytes); "
                        "try again when the store is back"
                    )
                )
                refused = max(refused, len(record))
                continue
            room -= len(record)
            records.append(record)
            answers.append(None)
        self._trial_bytes = refused or sum(map(len, records))
        if records:
            self._own.append(records)
            self._records += len(records)
        return answers

    def _look_for_room(self) -> None:
        """Whether what failed would be written now: it may be long until the next append."""
        if self._failing is None or self._room(look=True) < self._trial_bytes:
            return
        try:
            with tempfile.TemporaryFile(dir=self._own.directory, buffering=0) as trial:
                write_all(trial.fileno(), [bytes(self._trial_bytes)])
                os.fdatasync(trial.fileno())
        except OSError:
            return
        self._failing = None

    def _room(self, *, look: bool = False) -> int:
        """Bytes that may still be written; with `look`, after a new look at what others have."""
        if look:
            self._places.look(self._mine(), at_most_every=1.0)
        mine = sum(file.size for journal in self._journals() for file in journal.files)
        return self._max_bytes - self._places.other_bytes - mine

    def _write_error(self, error: OSError) -> BufferWriteError:
        return BufferWriteError(
            f"the push buffer in {self.directory} cannot be written: {error.strerror or error}"
        )

    # --- reading -----------------------------------------------------------------------

    def peek(self, max_messages: int, max_bytes: int) -> list[Record]:
        """The next records in order, as many as fit (one at least); none at the end.

        They are of one file, and one that the store was asked about before is alone: it must
        be repeated as it was. Raises `BufferWriteError` if something must be set aside and cannot.
        """
        try:
            for journal in self._journals():
                records = self._peek_into(journal, max_messages, max_bytes)
                if records:
                    return records
                if journal is not self._own:
                    self._adopted.remove(journal)
                    journal.remove()
            return []
        except OSError as error:
            raise self._write_error(error) from error
        finally:
            self._publish()

    def _peek_into(self, journal: Journal, max_messages: int, max_bytes: int) -> list[Record]:
        records: list[Record] = []
        ahead = messages = 0
        while journal.files:
            try:
                found = journal.read(ahead)
            except FileTroubleError as trouble:
                if records:
                    return records
                self._put_file_aside(journal, trouble)
                continue
            if found is None:
                if records:
                    return records
                journal.finish_file()
                continue
            record = self._readable(journal, *found, is_first=not records)
            if record is None:
                if records:
                    return records
                continue
            messages += record.entry.messages
            ahead = record.end - journal.offset
            if records and (messages > max_messages or ahead > max_bytes or record.entry.attempted):
                return records
            records.append(record)
            if record.entry.attempted:
                return records
        return records

    def _readable(
        self, journal: Journal, file: BufferFile, found: Frame | Gap, *, is_first: bool
    ) -> Record | None:
        """The record; if there is none to be had, what is there is passed over when it is first."""
        source = _source(journal, file)
        if isinstance(found, Frame):
            try:
                entry = decode_entry(found, self._cipher)
            except (UnreadableRecordError, EncryptionKeyError) as error:
                reason = str(error)
            else:
                is_fresh = journal is self._own and file.number >= self._first_number
                return Record(entry, journal, source, found.start, found.end, is_fresh)
        elif found.kind is GapKind.TORN:
            reason = ""
        else:
            reason = "its checksum is wrong"
        if is_first:
            if reason:
                self._aside.add_bytes(source, found.start, journal.raw(found), reason)
            else:
                cut = found.end - found.start
                log.warning("%s ends in %d bytes of a write that never ended", file.path, cut)
            journal.advance(found.end)
        return None

    def _put_file_aside(self, journal: Journal, trouble: FileTroubleError) -> None:
        """If even that is not allowed, the file stays where it is, for the next start."""
        try:
            self._aside.add_file(_source(journal, trouble.file), trouble.file.path, str(trouble))
        except OSError as error:
            log.error("cannot set aside %s (%s): %s", trouble.file.path, trouble, error)
        journal.forget_file()

    def done(self, records: Sequence[Record]) -> None:
        """What `peek` gave (all of it, or its first few) is in the store, or set aside."""
        journal = records[-1].journal
        journal.advance(records[-1].end)
        self._records -= sum(record.is_fresh for record in records)
        try:
            if journal.finish_file():
                return
            if time.monotonic() - self._saved_at >= SAVE_SECONDS:
                self._saved_at = time.monotonic()
                journal.save_position()
        except OSError as error:  # a full disk: what is replayed again is known to the store
            log.warning("the position in the push buffer cannot be saved: %s", error)
        finally:
            self._publish()

    def set_aside(self, refused: Sequence[Refusal]) -> None:
        """Put pushes where a person finds them; durable when it returns."""
        by_source: dict[str, list[tuple[SetAsidePush, Push]]] = {}
        for record, index, error in refused:
            push = record.entry.pushes[index]
            line = SetAsidePush(
                reason=str(error),
                code=error.code,
                at=time_text(self._clock.now()),
                mark=record.entry.mark,
                index=index,
                queues=sorted({item.queue for item in push.items}),
                producer=push.producer,
                commands=push.commands,
            )
            by_source.setdefault(record.source, []).append((line, push))
        try:
            for source, lines in by_source.items():
                self._aside.add_pushes(source, lines)
        except OSError as failure:
            raise self._write_error(failure) from failure
        finally:
            self._publish()

    # --- subdirectories ----------------------------------------------------------------

    def adopt(self) -> None:
        """Take over what processes that are gone have left, and see what else has changed."""
        self._adopted += self._places.claim_left(self._mine())
        self._places.look(self._mine())
        self._aside.look()
        self._look_for_room()
        self._publish()

    def _mine(self) -> set[Path]:
        return {journal.directory for journal in self._journals()}

    def _journals(self) -> Iterator[Journal]:
        yield from list(self._adopted)
        yield self._own

    # --- telling -----------------------------------------------------------------------

    def _publish(self) -> None:
        files = [file for journal in self._journals() for file in journal.files]
        self.state = BufferState(
            bytes=sum(journal.unread_bytes for journal in self._journals()),
            files=len(files),
            records=self._records,
            oldest_at=min((file.made_at for file in files), default=None),
            set_aside=self._aside.names,
            others=self._places.of_other_stores,
            failing=self._failing,
        )

    def close(self) -> None:
        """Let go of everything; others adopt what is left."""
        for journal in self._journals():
            try:
                journal.save_position()
            except OSError as error:
                log.warning("the position in the push buffer cannot be saved: %s", error)
            if journal.unread_bytes:
                journal.close()
            else:
                while journal.finish_file():
                    pass
                journal.remove()


def _source(journal: Journal, file: BufferFile) -> str:
    return f"{journal.directory.name}-{file.path.name.removesuffix('.buffer')}"
