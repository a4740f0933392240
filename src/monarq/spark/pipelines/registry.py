"""The registry of runs: who ran what, when, with what outcome. Kept as records of the store.

A run that cannot be noted (a token that may only read) goes on all the same: `warn` is told why.
"""

from __future__ import annotations

import secrets
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, Protocol

import msgspec

from monarq.clock import Clock, SystemClock
from monarq.errors import (
    ConflictError,
    ForbiddenError,
    MonarqError,
    NotFoundError,
    UnauthorizedError,
)
from monarq.model import Page, Record
from monarq.model.pages import all_rows
from monarq.pipeline_runs import (
    ARCHIVE_KIND,
    BEAT_SECONDS,
    RUN_KIND,
    RUNS_KEPT,
    STORE_KIND,
    Archive,
    Run,
    as_seen,
)
from monarq.record_values import decode_value
from monarq.spark.failures import as_monarq_error

_LONGEST_ERROR = 2_000


class Records(Protocol):
    """What is needed of `Client.admin`."""

    def put_record(
        self, kind: str, key: str, value: bytes, *, only_new: bool = False
    ) -> Record: ...

    def get_record(self, kind: str, key: str) -> Record: ...

    def list_records(
        self, kind: str, *, limit: int = 100, after: str | None = None
    ) -> Page[Record]: ...

    def delete_record(self, kind: str, key: str) -> bool: ...


class RunningRun:
    """A run under way: count rows with it."""

    def __init__(self, run: Run) -> None:
        self.noted = run

    @property
    def id(self) -> str:
        return self.noted.id

    def reached(self, rows: int) -> None:
        """How many rows it has worked on so far."""
        self.noted = msgspec.structs.replace(self.noted, rows=rows)


class RunRegistry:
    def __init__(
        self,
        records: Any,
        *,
        clock: Clock | None = None,
        warn: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._records: Records = records
        self._clock = clock or SystemClock()
        self._warn = warn
        self._is_writable = True

    @contextmanager
    def run(
        self, pipeline: str, *, lake: str | None = None, queues: Sequence[str] = ()
    ) -> Iterator[RunningRun]:
        """Note the run while it goes on, and how it ends."""
        now = self._clock.now()
        running = RunningRun(
            Run(
                id=new_run_id(now),
                pipeline=pipeline,
                started=now,
                updated=now,
                outcome="running",
                lake=lake,
                queues=list(queues),
                host=socket.gethostname(),
            )
        )
        self._note(running.noted)
        if self._is_writable:
            self._drop_old()
        over = threading.Event()
        beat = threading.Thread(
            target=self._beat, args=(running, over), daemon=True, name="monarq-run"
        )
        beat.start()
        outcome, error = "failed", None
        try:
            yield running
            outcome = "succeeded"
        except (KeyboardInterrupt, GeneratorExit):
            outcome = "stopped"
            raise
        except BaseException as failure:
            error = str(as_monarq_error(failure) or failure)[:_LONGEST_ERROR]
            raise
        finally:
            over.set()
            beat.join()
            now = self._clock.now()
            self._note(
                msgspec.structs.replace(
                    running.noted, outcome=outcome, updated=now, ended=now, error=error
                )
            )

    def _beat(self, running: RunningRun, over: threading.Event) -> None:
        while not over.wait(BEAT_SECONDS):
            self._note(msgspec.structs.replace(running.noted, updated=self._clock.now()))

    def _note(self, run: Run) -> None:
        if not self._is_writable:
            return
        try:
            self._records.put_record(RUN_KIND, run.id, msgspec.json.encode(run))
        except (ForbiddenError, UnauthorizedError) as error:
            self._is_writable = False
            self._warn(f"this run is not noted in the store: {error}")
        except MonarqError as error:
            # What the run itself does is told by the run; the next beat tries again.
            self._warn(f"this run could not be noted in the store: {error}")

    def _drop_old(self) -> None:
        try:
            keys = [record.key for record in _all(self._records, RUN_KIND)]
            for key in keys[:-RUNS_KEPT]:
                self._records.delete_record(RUN_KIND, key)
        except MonarqError as error:
            self._warn(f"old runs could not be removed from the store: {error}")

    def runs(self) -> list[Run]:
        """The newest first."""
        now = self._clock.now()
        found = [
            as_seen(run, now)
            for record in _all(self._records, RUN_KIND)
            if (run := decode_value(record, Run)) is not None
        ]
        return found[::-1]

    def note_archive(self, lake_id: str, archive: Archive) -> None:
        """How far an archive has come."""
        if self._is_writable:
            try:
                self._records.put_record(ARCHIVE_KIND, lake_id, msgspec.json.encode(archive))
            except MonarqError as error:
                self._warn(f"the archive's state could not be noted in the store: {error}")

    def store_id(self) -> str:
        """What tells this store from others, whichever way one comes to it."""
        try:
            record = self._records.get_record(STORE_KIND, "id")
        except NotFoundError:
            mine = msgspec.json.encode(secrets.token_hex(8))
            record = self._records.put_record(STORE_KIND, "id", mine, only_new=True)
        found = decode_value(record, str)
        if not found:
            raise ConflictError(
                f"the record `id` of kind `{STORE_KIND}` holds no store id; put the id that the "
                "lakes of this store name back (a JSON string), or delete the record if there "
                "are none"
            )
        return found


def new_run_id(now: int) -> str:
    moment = datetime.fromtimestamp(now / 1_000_000, UTC)
    return f"{moment:%Y%m%dT%H%M%S.%f}-{secrets.token_hex(3)}"


def _all(records: Records, kind: str) -> Iterator[Record]:
    return all_rows(lambda limit, after: records.list_records(kind, limit=limit, after=after))
