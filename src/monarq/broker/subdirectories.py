"""The numbered subdirectories of the push buffer: which are ours, which can be adopted, and what
the others hold.

Blocks, like all that has to do with the files; decides nothing about records.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection
from pathlib import Path

from monarq import private_files
from monarq.broker.journal import Journal, read_owner, sync_directory
from monarq.clock import Clock

log = logging.getLogger("monarq.buffer")

_CLAIMS = 1000


class Subdirectories:
    def __init__(self, directory: Path, *, store: str, clock: Clock) -> None:
        self._directory = directory
        self._store = store
        self._clock = clock
        self._looked_at = 0.0
        self.of_other_stores: list[str] = []
        """Names of those with records for another store, when `look` was last called."""
        self.other_bytes = 0
        """What all that are not ours hold, then."""

    def claim_own(self) -> Journal:
        """The first that nobody has, or a new one."""
        for directory in self._paths():
            journal = self._claim(directory)
            if journal is not None:
                return journal
        for _ in range(_CLAIMS):
            taken = [int(path.name) for path in self._paths()]
            directory = self._directory / f"{max(taken, default=0) + 1:04}"
            try:
                directory.mkdir(mode=private_files.DIRECTORY_MODE)
            except FileExistsError:
                continue
            journal = Journal.claim(directory, store=self._store, clock=self._clock)
            if journal is not None:
                sync_directory(self._directory)
                return journal
        raise OSError(f"no subdirectory of {self._directory} could be claimed")

    def claim_left(self, mine: Collection[Path]) -> list[Journal]:
        """Those that processes that are gone have left. Empty ones are removed."""
        found: list[Journal] = []
        for directory in self._paths():
            journal = None if directory in mine else self._claim(directory)
            if journal is None:
                continue
            if journal.files:
                log.warning("adopted %d bytes of pushes in %s", journal.unread_bytes, directory)
                found.append(journal)
            else:
                journal.remove()
        return found

    def look(self, mine: Collection[Path], *, at_most_every: float = 0.0) -> None:
        """Note what is in those that are not ours, whether their owner lives or not."""
        if time.monotonic() - self._looked_at < at_most_every:
            return
        self._looked_at = time.monotonic()
        self.other_bytes, others = 0, []
        for directory in self._paths():
            if directory in mine:
                continue
            size = _size(directory)
            self.other_bytes += size
            owner = read_owner(directory)
            if size and owner is not None and owner.store != self._store:
                others.append(directory.name)
        if others and others != self.of_other_stores:
            log.error(
                "%s of the push buffer hold pushes for another store, and are not replayed here",
                ", ".join(others),
            )
        self.of_other_stores = others

    def _claim(self, directory: Path) -> Journal | None:
        """One that cannot be used (not ours to write, say) hinders nobody else."""
        try:
            return Journal.claim(directory, store=self._store, clock=self._clock)
        except OSError as error:
            log.warning("cannot adopt %s: %s", directory, error)
            return None

    def _paths(self) -> list[Path]:
        return sorted(
            (path for path in self._directory.iterdir() if path.name.isdecimal() and path.is_dir()),
            key=lambda path: int(path.name),
        )


def _size(directory: Path) -> int:
    total = 0
    for path in directory.glob("*.buffer"):
        try:
            total += path.stat().st_size
        except FileNotFoundError:
            continue
    return total
