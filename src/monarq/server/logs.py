"""Logs: one line an event, as JSON for machines or as text for people, on stderr.

Fields are given with `extra={"fields": {...}}`. Nothing here looks into what is logged: whoever
logs leaves out secrets, payloads and credentials.
"""

from __future__ import annotations

import logging
import sys
from datetime import UTC, datetime
from typing import Any, TextIO

import msgspec

from monarq.config import Settings

_LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40}
_STYLES = {10: "\x1b[2m", 20: "", 30: "\x1b[33m", 40: "\x1b[31m", 50: "\x1b[31m"}
_RESET = "\x1b[0m"

_encoder = msgspec.json.Encoder(enc_hook=repr)


class _Handler(logging.StreamHandler[TextIO]):
    """Told from others' handlers by its type."""


def configure(settings: Settings, stream: TextIO | None = None) -> None:
    """Log as the settings say. Calling it again replaces what an earlier call set up: a process has
    one root logger, which the command that it runs sets up, and no broker changes."""
    stream = stream or sys.stderr
    handler = _Handler(stream)
    if is_text(settings, stream):
        handler.setFormatter(TextFormatter(colours=stream.isatty()))
    else:
        handler.setFormatter(JsonFormatter())
    root = logging.getLogger()
    for old in [old for old in root.handlers if isinstance(old, _Handler)]:
        root.removeHandler(old)
    root.addHandler(handler)
    level = _LEVELS[settings.log_level]
    root.setLevel(max(level, logging.WARNING))
    logging.getLogger("monarq").setLevel(level)
    # Its pool tells of every connection that is lost with a stack trace; the broker tells once.
    logging.getLogger("asyncpg").setLevel(logging.ERROR)
    logging.captureWarnings(True)


def is_text(settings: Settings, stream: TextIO | None = None) -> bool:
    """Whether a person reads the log: set so, or on a terminal."""
    if settings.log_format == "auto":
        return (stream or sys.stderr).isatty()
    return settings.log_format == "text"


class JsonFormatter(logging.Formatter):
    """`{"time","level","logger","message", …fields, "error"}` in one line."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        for name, value in _fields(record).items():
            line.setdefault(name, value)
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        try:
            return _encoder.encode(line).decode()
        except (TypeError, ValueError, UnicodeError):  # lone surrogates, say
            plain = {str(name): _encodable(str(value)) for name, value in line.items()}
            return _encoder.encode(plain).decode()


class TextFormatter(logging.Formatter):
    """`02:03:04.567 info   message  name=value …`; control characters are escaped."""

    def __init__(self, *, colours: bool) -> None:
        super().__init__()
        self._colours = colours

    def format(self, record: logging.LogRecord) -> str:
        fields = "".join(f"  {name}={_cell(value)}" for name, value in _fields(record).items())
        text = f"{_time(record)[11:-1]} {record.levelname.lower():7} "
        text += _printable(record.getMessage()) + fields
        if self._colours and _STYLES.get(record.levelno):
            text = f"{_STYLES[record.levelno]}{text}{_RESET}"
        if record.exc_info:
            text += "\n" + self.formatException(record.exc_info)
        return text


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    fields = getattr(record, "fields", None)
    return fields if isinstance(fields, dict) else {}


def _time(record: logging.LogRecord) -> str:
    at = datetime.fromtimestamp(record.created, UTC)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _encodable(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode()


def _cell(value: Any) -> str:
    text = _printable(str(value))
    return repr(text) if " " in text or not text else text


def _printable(text: str) -> str:
    """What a caller chose (a queue's name) can neither forge a line nor steer a terminal."""
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode()
        for character in text
    )
