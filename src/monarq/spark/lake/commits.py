"""The commits of a lake: what one says, and what all of them say together.

A commit is a file that appears whole or not at all, under the next number; two that want the same
number are settled by the file system. This module reads and makes such files, and touches no data.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterable
from datetime import date
from enum import StrEnum
from pathlib import Path

import msgspec
from msgspec import Struct

from monarq.errors import ConflictError, MonarqError
from monarq.spark.lake.layout import table_of

_DIGITS = 12
_TRIES = 5


class Kind(StrEnum):
    ARCHIVE = "archive"
    COMPACT = "compact"


class DataFile(Struct, frozen=True, kw_only=True):
    path: str
    """Relative to the lake, and to `_files`."""
    queue: str
    date: date
    rows: int
    bytes: int

    @property
    def table(self) -> str:
        return table_of(self.path)


class LogStep(Struct, frozen=True, kw_only=True):
    """Of these queues, everything up to a position of a log is in."""

    table: str
    until: str
    queues: list[str]


class Gap(Struct, frozen=True, kw_only=True):
    """What was gone from the store before it was archived."""

    queue: str
    partition: str
    partition_id: int
    first_seq: int
    last_seq: int


class Base(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Everything that was known before a commit, so that nothing older need be read."""

    files: list[DataFile] = []
    removed: dict[str, int] = {}
    seqs: dict[int, int] = {}
    logs: list[LogStep] = []
    gaps: list[Gap] = []


class Commit(Struct, frozen=True, kw_only=True, omit_defaults=True):
    number: int
    kind: Kind
    at: int
    """Microseconds since the epoch."""
    run: str
    batch: str
    added: list[DataFile] = []
    removed: list[str] = []
    forgotten: list[str] = []
    """Removed by an earlier commit, and now deleted for good."""
    seqs: dict[int, int] = {}
    """By partition id: up to which seq its messages are in."""
    logs: list[LogStep] = []
    gaps: list[Gap] = []
    base: Base | None = None

    @property
    def rows(self) -> int:
        return sum(each.rows for each in self.added)


class LakeState:
    """What the commits up to a number say together."""

    def __init__(self) -> None:
        self.number = 0
        self.files: dict[str, DataFile] = {}
        self.removed: dict[str, int] = {}
        """When a file was replaced, while it is still there for those who read it."""
        self.seqs: dict[int, int] = {}
        self.logs: dict[tuple[str, str], str] = {}
        self.gaps: list[Gap] = []

    def add(self, commit: Commit) -> None:
        if commit.base is not None:
            self._start_from(commit.base)
        for path in commit.removed:
            del self.files[path]
            self.removed[path] = commit.at
        for path in commit.forgotten:
            self.removed.pop(path, None)
        self.files.update((each.path, each) for each in commit.added)
        self.seqs.update(commit.seqs)
        self.logs.update(
            ((step.table, queue), step.until) for step in commit.logs for queue in step.queues
        )
        self.gaps += commit.gaps
        self.number = commit.number

    def _start_from(self, base: Base) -> None:
        self.files = {each.path: each for each in base.files}
        self.removed = dict(base.removed)
        self.seqs = dict(base.seqs)
        self.logs = {(step.table, queue): step.until for step in base.logs for queue in step.queues}
        self.gaps = list(base.gaps)

    def as_base(self) -> Base:
        steps: dict[tuple[str, str], list[str]] = {}
        for (table, queue), until in self.logs.items():
            steps.setdefault((table, until), []).append(queue)
        return Base(
            files=list(self.files.values()),
            removed=self.removed,
            seqs=self.seqs,
            logs=[
                LogStep(table=table, until=until, queues=sorted(queues))
                for (table, until), queues in sorted(steps.items())
            ],
            gaps=self.gaps,
        )

    def files_of(self, table: str, queues: Iterable[str] | None = None) -> list[DataFile]:
        wanted = None if queues is None else set(queues)
        return [
            each
            for each in self.files.values()
            if each.table == table and (wanted is None or each.queue in wanted)
        ]


class CommitLog:
    """The folder of commits."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def numbers(self) -> list[int]:
        return sorted(
            int(entry.name[:_DIGITS])
            for entry in os.scandir(self._folder)
            if entry.name.endswith(".json") and entry.name[:_DIGITS].isdecimal()
        )

    def read(self, number: int) -> Commit:
        path = self._path(number)
        try:
            return msgspec.json.decode(path.read_bytes(), type=Commit)
        except msgspec.DecodeError as error:
            raise MonarqError(f"the commit {path} is damaged: {error}") from None

    def state(self) -> LakeState:
        """What all say together."""
        return self._fold(self._needed())

    def _needed(self) -> list[Commit]:
        """From the newest one with a base on, in order."""
        for _ in range(_TRIES):
            try:
                return self._read_needed()
            except FileNotFoundError:
                # A compaction has just dropped what it made superfluous.
                continue
        raise ConflictError(f"the commits in {self._folder} change too fast to be read")

    def _read_needed(self) -> list[Commit]:
        commits: list[Commit] = []
        for number in reversed(self.numbers()):
            commits.append(self.read(number))
            if commits[-1].base is not None:
                break
        return commits[::-1]

    def _fold(self, commits: list[Commit]) -> LakeState:
        state = LakeState()
        for commit in commits:
            if commit.base is None and commit.number != state.number + 1:
                raise MonarqError(
                    f"commit {state.number + 1} is missing in {self._folder}; "
                    "restore it from a backup, or archive into a new folder"
                )
            state.add(commit)
        return state

    def since(self, number: int) -> list[Commit]:
        return [self.read(each) for each in self.numbers() if each > number]

    def make(self, commit: Commit) -> None:
        """Durable when this returns. `ConflictError`: somebody else has this number."""
        path = self._path(commit.number)
        temporary = self._folder / f".{path.name}.{secrets.token_hex(4)}"
        write_durably(temporary, msgspec.json.format(msgspec.json.encode(commit), indent=1))
        try:
            os.link(temporary, path)
        except FileExistsError:
            raise ConflictError(f"commit {commit.number} was made by someone else") from None
        finally:
            temporary.unlink()
        sync_folder(self._folder)

    def drop_superfluous(self, published: int) -> int:
        """Delete the commits before the newest one with a base. Those after `published` stay:
        whoever publishes has still to read them."""
        needed = self._needed()
        end = min(needed[0].number, published + 1) if needed else 0
        old = [each for each in self.numbers() if each < end]
        for each in old:
            self._path(each).unlink(missing_ok=True)
        return len(old)

    def _path(self, number: int) -> Path:
        return self._folder / f"{number:0{_DIGITS}}.json"


def write_durably(path: Path, data: bytes) -> None:
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def sync_folder(path: Path) -> None:
    """Make new names in a folder survive a power cut."""
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
