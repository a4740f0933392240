"""What the clients of a chaos run write down: a line of JSON for each event, at once.

Times are seconds of the machine's monotonic clock, which all processes share.
"""

import os
from pathlib import Path
from typing import TypeAlias

from msgspec import Struct, json

from tests.torn_lines import whole_lines


class PushAnswered(Struct, frozen=True, tag=True):
    """All of a push was taken."""

    queue: str
    sender: str
    numbers: list[int]
    statuses: list[str]
    at: float


class PushUnanswered(Struct, frozen=True, tag=True):
    """Nobody knows what became of a push: refused, or no answer came. The sender repeats it (by
    its transaction ids), or goes on without knowing."""

    queue: str
    sender: str
    numbers: list[int]
    reason: str
    is_repeated: bool
    at: float


class Seen(Struct, frozen=True, array_like=True):
    """A message in the answer to a pop."""

    partition_id: int
    seq: int
    sender: str
    number: int
    attempts: int


class Popped(Struct, frozen=True, tag=True):
    queue: str
    group: str
    consumer: str
    lease: int
    """Its number: a later lease has a higher one."""
    messages: list[Seen]
    asked_at: float
    at: float


class AckAsked(Struct, frozen=True, tag=True):
    """An ack of some messages under a lease is on its way."""

    queue: str
    group: str
    consumer: str
    lease: int
    status: str
    places: list[tuple[int, int]]
    """Partition and seq of each."""
    at: float


class AckAnswered(Struct, frozen=True, tag=True):
    """Of one message; `error` is the code if it was refused."""

    queue: str
    group: str
    consumer: str
    lease: int
    status: str
    place: tuple[int, int]
    error: str | None
    at: float


Event: TypeAlias = PushAnswered | PushUnanswered | Popped | AckAsked | AckAnswered


class Log:
    """One client's events. Each is in the file when `write` returns."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)

    def write(self, event: Event) -> None:
        os.write(self._file, json.encode(event) + b"\n")

    def close(self) -> None:
        os.close(self._file)


def read_logs(directory: Path) -> list[Event]:
    decode = json.Decoder(Event).decode
    return [
        decode(line)
        for path in sorted(directory.glob("*.log"))
        for line in whole_lines(path.read_bytes().splitlines(keepends=True))
    ]
