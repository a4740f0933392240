"""What commands that run Spark share: where it runs, what it reads, how it fails."""

from __future__ import annotations

import os
import re
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from monarq.cli.calling import Caller
from monarq.errors import InvalidRequestError, MonarqError

if TYPE_CHECKING:
    from types import FrameType

    from pyspark.sql import SparkSession

    from monarq.spark.pipelines.place import Place

_PANEL = "Where Spark runs"
#: They print what fails with Java's stack; the error itself is told in one line.
_NOISY = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
_SQLITE = "sqlite:///"
_MASTER = re.compile(r"local(-cluster)?($|\[)|spark://.|yarn$|k8s://.")

LakeArgument = Annotated[
    str, typer.Argument(metavar="LAKE", help="the lake's folder", show_default=False)
]
MasterOption = Annotated[
    str | None,
    typer.Option(
        "--master",
        help="Spark's master, such as spark://host:7077; without, all cores of this machine",
        rich_help_panel=_PANEL,
        show_default=False,
    ),
]
ConfOption = Annotated[
    list[str] | None,
    typer.Option(
        "--conf",
        metavar="NAME=VALUE",
        help="a setting of Spark; may be given several times",
        rich_help_panel=_PANEL,
        show_default=False,
    ),
]


def check_spark_is_installed() -> None:
    for module in ("pyspark", "pyarrow"):
        if find_spec(module) is None:
            raise MonarqError(f"{module} is not installed: pip install 'monarq[spark]'")


def place_of(caller: Caller) -> Place:
    """Where the caller's broker or store is, for Spark's workers."""
    from monarq.spark.pipelines.place import Place

    if caller.urls:
        return Place(caller.urls[0], caller.token)
    address = caller.store_address
    if not address.startswith(("sqlite:///", "postgresql://", "postgres://")):
        raise InvalidRequestError(
            f"Spark's workers cannot reach {address!r}: give --url, or a store on disk"
        )
    caller.check_store_is_there()
    if address.startswith(_SQLITE):
        # Spark's workers may run in another folder.
        address = _SQLITE + str(Path(address.removeprefix(_SQLITE)).absolute())
    keys, schema = caller.sealing
    return Place(address, encryption_key=",".join(keys) or None, schema=schema)


class Spark:
    """A session that is started when it is first asked for, and stopped at the end. One that was
    there before is used as it is, and left alone."""

    def __init__(self, master: str | None, conf: Sequence[str]) -> None:
        if master is not None and not _MASTER.match(master):
            raise InvalidRequestError(
                f"--master must be local[N], spark://HOST:PORT, yarn or k8s://…, not {master!r}"
            )
        self._master = master
        self._conf = parse_conf(conf)
        self._session: SparkSession | None = None
        self._is_own = False

    def __call__(self) -> SparkSession:
        if self._session is None:
            from pyspark.logger import PySparkLogger
            from pyspark.sql import SparkSession

            from monarq.spark import session
            from monarq.spark.failures import spark_failures

            self._is_own = SparkSession.getActiveSession() is None
            for name in _NOISY:
                PySparkLogger.getLogger(name).disabled = True
            with spark_failures(), _quiet_java():
                self._session = session(self._master, app_name="monarq pipeline", config=self._conf)
        return self._session

    def __enter__(self) -> Spark:
        return self

    def __exit__(self, *_: object) -> None:
        if self._session is not None and self._is_own:
            # Whatever goes wrong now, the work is done or its error told.
            with suppress(Exception):
                self._session.stop()


def parse_conf(conf: Sequence[str]) -> Mapping[str, str]:
    settings: dict[str, str] = {}
    for each in conf:
        name, sign, value = each.partition("=")
        if not sign or not name.startswith("spark."):
            raise InvalidRequestError(f"--conf must be spark.NAME=VALUE, not {each!r}")
        settings[name] = value
    return settings


@contextmanager
def _quiet_java() -> Iterator[None]:
    """Java inherits stderr, and says things there that mean nothing to whoever runs a command,
    unless it does not start."""
    sys.stderr.flush()
    kept = os.dup(2)
    with tempfile.TemporaryFile() as log:
        os.dup2(log.fileno(), 2)
        try:
            yield
        except Exception as error:
            if "Java gateway" not in str(error):
                raise
            log.seek(0)
            said = log.read().decode(errors="replace").splitlines()
            why = [line.strip() for line in said if re.search("Error|Exception|Invalid", line)]
            reason = why[0] if why else str(error)
            raise MonarqError(f"Spark did not start: {reason}") from None
        finally:
            os.dup2(kept, 2)
            os.close(kept)


@contextmanager
def stopping() -> Iterator[threading.Event]:
    """Set by the first SIGTERM or SIGINT; the second one interrupts."""
    stop = threading.Event()

    def on_signal(number: int, frame: FrameType | None) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()

    before: dict[int, Any] = {
        number: signal.signal(number, on_signal) for number in (signal.SIGTERM, signal.SIGINT)
    }
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def terminable() -> Iterator[None]:
    """SIGTERM interrupts as SIGINT does, so that what is open is closed."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
