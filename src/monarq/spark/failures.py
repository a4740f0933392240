"""One clear line out of whatever Spark raises.

An error in one of Spark's workers reaches the driver as the text of its traceback, wrapped several
times over. Nothing here hides what is not understood: then Spark's own first line is told.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager

from monarq import errors
from monarq.errors import MonarqError

#: How Python ends a traceback.
_OURS = re.compile(r"^(?:\S*: )?monarq\.errors\.(\w+): (.+)$", re.MULTILINE)
_SYSTEM = re.compile(r"\[Errno (\d+)\] ([^\n]+)")
_FULL = re.compile(r"No space left on device|Disk quota exceeded|File too large")
_MASTER = re.compile(
    r"All masters are unresponsive|Could not parse Master URL[^\n]*|"
    r"Initial job has not accepted any resources"
)
_CONDITION = re.compile(r"^\[([A-Z_.0-9]+)\] ")
_QUALIFIED = re.compile(r"^(?:[a-z][\w$]*\.)+[A-Z][\w$]*: ")
_LONGEST = 500


@contextmanager
def spark_failures() -> Iterator[None]:
    """Around calls of Spark: what fails there is raised as an error of ours."""
    try:
        yield
    except MonarqError:
        raise
    except Exception as error:
        ours = as_monarq_error(error)
        if ours is None:
            raise
        raise ours from None


def as_monarq_error(error: BaseException) -> MonarqError | None:
    """What it means, or None if it is neither Spark's nor a disk's."""
    if isinstance(error, MonarqError):
        return error
    if isinstance(error, OSError) and error.errno is not None:
        return _of_system(error.strerror or str(error), error.filename)
    if not _is_sparks(error):
        return None
    text = str(error)
    for name, message in reversed(_OURS.findall(text)):
        kind = getattr(errors, name, None)
        if isinstance(kind, type) and issubclass(kind, MonarqError):
            return _made(kind, message)
    if full := _FULL.search(text):
        return MonarqError(f"nothing more can be written: {full[0]}")
    if system := _SYSTEM.search(text):
        return MonarqError(f"a worker of Spark failed: {system[2]}")
    if master := _MASTER.search(text):
        return MonarqError(f"Spark's master cannot be used: {master[0]}")
    return MonarqError(f"Spark failed: {first_line(text)}")


def _is_sparks(error: BaseException) -> bool:
    origin = type(error).__module__.partition(".")[0]
    return origin in ("py4j", "pyspark") or isinstance(error, ConnectionRefusedError)


def _of_system(reason: str, path: object) -> MonarqError:
    where = f" ({os.fsdecode(path)})" if isinstance(path, str | bytes) else ""
    if _FULL.search(reason):
        return MonarqError(f"nothing more can be written: {reason}{where}")
    return MonarqError(f"{reason}{where}")


def _made(kind: type[MonarqError], message: str) -> MonarqError:
    """Some are made of more than a text."""
    try:
        return kind(message)
    except TypeError:
        return MonarqError(message)


def first_line(text: str) -> str:
    """What the message says, without what surrounds it."""
    for line in text.splitlines():
        said = _QUALIFIED.sub("", _CONDITION.sub("", line.strip()))
        if said and not said.startswith(("An error occurred while calling", "Traceback")):
            return said[:_LONGEST]
    return "it does not say why"
