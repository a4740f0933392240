"""A lake on a file system: making it, committing to it, and mending it after a crash.

A batch is written to `_files` first, where no other reader looks. Its commit makes it part of the
lake, at once and whole; then it is published: linked to where every reader finds it. A crash before
the commit leaves files that count for nothing, a crash after it leaves a part unpublished; `repair`
ends both. Nothing here knows what is in a file.
"""

from __future__ import annotations

import errno
import os
import secrets
import socket
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Self

import msgspec
from msgspec import Struct

from monarq.errors import ConflictError, InvalidRequestError, NotFoundError
from monarq.spark.lake.commits import Commit, CommitLog, LakeState, sync_folder, write_durably
from monarq.spark.lake.layout import BATCHES, COMMITS, FILES, LAKE_FILE, LOCK_FILE
from monarq.spark.lake.locks import held, is_free

#: After that long whoever held a batch on another machine is taken for dead.
ORPHAN_SECONDS = 86_400.0

_PUBLISHED = "published"
_TRIES = 100


class LakeInfo(Struct, frozen=True, kw_only=True):
    """What lake this is: chosen when it is made."""

    id: str
    format: str = "parquet"
    store: str | None = None
    """Which store it is an archive of: the numbers of partitions are a store's own."""
    version: int = 1


class Lake:
    def __init__(self, root: Path, info: LakeInfo) -> None:
        self.root = root
        self.info = info
        self.log = CommitLog(root / COMMITS)

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Self:
        """The lake at this path, or `NotFoundError`."""
        root = _root(path)
        try:
            data = (root / LAKE_FILE).read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            raise NotFoundError(
                f"there is no lake at {root}; `monarq pipeline archive` makes one"
            ) from None
        try:
            info = msgspec.json.decode(data, type=LakeInfo)
        except msgspec.DecodeError as error:
            raise InvalidRequestError(f"{root / LAKE_FILE} is damaged: {error}") from None
        if info.version != 1:
            raise InvalidRequestError(f"the lake at {root} was made by a newer Monarq")
        return cls(root, info)

    @classmethod
    def open_or_make(
        cls, path: str | os.PathLike[str], *, store: str, file_format: str = "parquet"
    ) -> Self:
        """Make it if there is none. One that is an archive of another store is refused."""
        root = _root(path)
        if not (root / LAKE_FILE).exists():
            _make(root, LakeInfo(id=secrets.token_hex(8), format=file_format, store=store))
        lake = cls.open(root)
        if lake.info.store != store:
            raise ConflictError(
                f"the lake at {root} is an archive of another store; use another folder for this"
            )
        if lake.info.format != file_format:
            raise ConflictError(f"the lake at {root} is in the format {lake.info.format}")
        return lake

    @property
    def files_root(self) -> Path:
        return self.root / FILES

    def state(self) -> LakeState:
        return self.log.state()

    # --- writing ---------------------------------------------------------------------------

    @contextmanager
    def archiving(self) -> Iterator[None]:
        """For the one archiver that a lake may have at a time."""
        with held(self.root / LOCK_FILE) as got:
            if not got:
                raise ConflictError(f"another archive into {self.root} is running")
            yield

    @contextmanager
    def batch(self) -> Iterator[str]:
        """A name for files to be written. If it fails, what was written is removed."""
        name = f"{datetime.now(UTC):%Y%m%dT%H%M%S}-{secrets.token_hex(4)}"
        owner = self.root / BATCHES / name
        with held(owner, content=socket.gethostname()):
            try:
                yield name
            except BaseException:
                self._remove_files({name})
                raise
            finally:
                owner.unlink(missing_ok=True)

    def commit(self, build: Callable[[LakeState], Commit]) -> Commit:
        """Commit what `build` makes of the newest state, then publish. `build` is called again
        if someone else commits in between, and raises if it no longer holds."""
        for _ in range(_TRIES):
            commit = build(self.state())
            try:
                self.log.make(commit)
            except ConflictError:
                continue
            self.publish()
            return commit
        raise ConflictError(f"others commit to {self.root} all the time; nothing was committed")

    def publish(self) -> None:
        """Let every reader see exactly what is committed."""
        with self._publishing() as done:
            commits = self.log.since(done)
            if not commits:
                return
            # A file may be added by one of them and removed by the next.
            live = self.state().files
            removed = {path for commit in commits for path in commit.removed} - live.keys()
            added = {each.path for commit in commits for each in commit.added} & live.keys()
            if self.info.format == "delta":
                from monarq.spark.lake.delta import follow

                # Whoever reads by an older version of Delta's log needs what was removed.
                self._link(added)
                follow(self, commits)
            else:
                # First these: rows may be missing for a moment, but are never seen twice.
                self.unlink(removed)
                self._link(added)
            marker = self.root / COMMITS / _PUBLISHED
            temporary = marker.with_name(f".{_PUBLISHED}")
            write_durably(temporary, str(commits[-1].number).encode())
            temporary.replace(marker)

    @contextmanager
    def _publishing(self) -> Iterator[int]:
        """For one at a time: up to which commit all is published."""
        with held(self.root / COMMITS / f"{_PUBLISHED}.lock", wait=True):
            marker = self.root / COMMITS / _PUBLISHED
            yield int(marker.read_text()) if marker.exists() else 0

    def drop_superfluous(self) -> int:
        """Delete the commits that a newer one with a base makes superfluous; how many."""
        with self._publishing() as done:
            return self.log.drop_superfluous(done)

    def unlink(self, paths: Iterable[str]) -> None:
        """Hide files from other readers than our own."""
        for path in paths:
            (self.root / path).unlink(missing_ok=True)

    def _link(self, paths: set[str]) -> None:
        folders = {(self.root / path).parent for path in paths}
        for folder in folders:
            folder.mkdir(parents=True, exist_ok=True)
        for path in paths:
            try:
                os.link(self.files_root / path, self.root / path)
            except FileExistsError:
                continue
        for folder in folders:
            sync_folder(folder)

    # --- mending ---------------------------------------------------------------------------

    def repair(self) -> None:
        """Finish or undo what a crash has left."""
        dead = {
            entry.name
            for entry in os.scandir(self.root / BATCHES)
            if self._is_dead(Path(entry.path))
        }
        # In this order: whoever is dead commits nothing any more.
        self.publish()
        if dead:
            self._remove_files(dead)
            for name in dead:
                (self.root / BATCHES / name).unlink(missing_ok=True)

    def _is_dead(self, owner: Path) -> bool:
        try:
            if not is_free(owner):
                return False
            # A lock of another machine may not be seen here.
            is_ours = owner.read_text() == socket.gethostname()
            return is_ours or time.time() - owner.stat().st_mtime > ORPHAN_SECONDS
        except FileNotFoundError:
            return False

    def _remove_files(self, batches: set[str]) -> None:
        for path in self.stray_files():
            if path.name[: len("20260131T120000-01234567")] in batches:
                path.unlink(missing_ok=True)

    def stray_files(self) -> Iterator[Path]:
        """What is in `_files` and in no commit: written now, or left by a crash."""
        found = list(self.files_root.rglob("*.parquet*"))
        state = self.state()
        for path in found:
            relative = path.relative_to(self.files_root).as_posix()
            if relative not in state.files and relative not in state.removed:
                yield path


def _root(path: str | os.PathLike[str]) -> Path:
    text = os.fspath(path)
    if "://" in text and not text.startswith("file://"):
        raise InvalidRequestError(
            f"a lake is a folder that this machine and Spark's workers reach by the same path, "
            f"not {text!r}"
        )
    return Path(text.removeprefix("file://")).absolute()


def _make(root: Path, info: LakeInfo) -> None:
    for folder in (COMMITS, FILES, BATCHES):
        (root / folder).mkdir(parents=True, exist_ok=True)
    temporary = root / f".{LAKE_FILE}.{secrets.token_hex(4)}"
    write_durably(temporary, msgspec.json.format(msgspec.json.encode(info)))
    try:
        os.link(temporary, root / LAKE_FILE)
    except FileExistsError:
        pass  # Somebody else was quicker: it is theirs that counts.
    except OSError as error:
        if error.errno in (errno.EPERM, errno.ENOTSUP):
            raise InvalidRequestError(
                f"the file system of {root} has no hard links; a lake needs one that has"
            ) from None
        raise
    finally:
        temporary.unlink()
    sync_folder(root)
