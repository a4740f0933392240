"""What a process of `test_processes` does, run as `python -m tests.store.process_roles <part>`.

Each opens the store by itself, does its part, and writes down what it was answered. Some kill
themselves on the way, as SIGKILL would: while they hold leases, or in the middle of a call.
"""

import asyncio
import os
import random
import signal
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

import msgspec

from monarq.clock import SystemClock
from monarq.errors import LeaseError, MonarqError
from monarq.ids import parse_lease_id
from monarq.model import (
    DEFAULT_GROUP,
    AckStatus,
    Message,
    Pop,
    Popped,
    Push,
    PushItem,
    PushStatus,
)
from monarq.store import Store, open_store
from tests.store.calls import ack_of
from tests.store.history import Answered, Asked, Leased, Log, Sent

CLOCK = SystemClock()
IDLE_SECONDS = 0.01


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """What one process is told."""

    role: str
    address: str
    schema: str
    log: str
    stop: str
    """A file: once it is there, consumers end."""
    seed: int
    queue: str
    group: str = DEFAULT_GROUP
    partitions: list[str] = []
    count: int = 0
    lease_seconds: float = 0.6
    dies_after: float | None = None
    """Kills itself so many seconds after it has begun, whatever it does then."""
    dies_holding: float = 0.0
    """The probability of killing itself with a lease in hand."""


def kill_oneself() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class Process:
    def __init__(self, part: Part, store: Store) -> None:
        self.part = part
        self.store = store
        self.log = Log(Path(part.log))
        self.random = random.Random(part.seed)

    # --- pushing -----------------------------------------------------------------------------

    async def push(self) -> None:
        """Numbered messages, in batches over several partitions, in whatever order."""
        numbers = list(range(self.part.count))
        while numbers:
            size = self.random.randint(1, 8)
            batch, numbers = numbers[:size], numbers[size:]
            self.random.shuffle(batch)
            await self.send(batch)

    async def send(self, numbers: Sequence[int]) -> None:
        partitions = self.part.partitions or ["Default"]
        items = [
            PushItem(
                self.part.queue,
                b"%d" % number,
                partition=partitions[number % len(partitions)],
                transaction_id=f"number-{number}",
            )
            for number in numbers
        ]
        [answer] = await self.store.push([Push(items)])
        if isinstance(answer, MonarqError):
            raise answer
        for pushed in answer:
            is_duplicate = pushed.status is PushStatus.DUPLICATE
            self.log.write(
                Sent(pushed.transaction_id, pushed.partition_id, pushed.seq, is_duplicate)
            )

    # --- consuming ---------------------------------------------------------------------------

    async def consume(self) -> None:
        while not self.is_told_to_stop():
            asked_at = CLOCK.now()
            request = Pop(
                queue=self.part.queue,
                group=self.part.group,
                batch=self.random.choice([1, 3, 10]),
                partitions=self.random.choice([1, 3]),
                lease_seconds=self.part.lease_seconds,
            )
            [popped] = await self.store.pop([request])
            if isinstance(popped, MonarqError):
                raise popped
            if popped.messages:
                self.note_leases(popped, asked_at)
                await self.work_on(popped)
            else:
                await asyncio.sleep(IDLE_SECONDS)

    def is_told_to_stop(self) -> bool:
        return Path(self.part.stop).exists()

    def note_leases(self, popped: Popped, asked_at: int) -> None:
        assert popped.lease_id is not None
        assert popped.lease_until is not None
        number, _ = parse_lease_id(popped.lease_id)
        for partition_id in {message.partition_id for message in popped.messages}:
            messages = [m for m in popped.messages if m.partition_id == partition_id]
            self.log.write(
                Leased(
                    self.part.group,
                    number,
                    partition_id,
                    [message.seq for message in messages],
                    [message.attempts for message in messages],
                    asked_at,
                    CLOCK.now(),
                    popped.lease_until,
                )
            )

    async def work_on(self, popped: Popped) -> None:
        if self.random.random() < self.part.dies_holding:
            kill_oneself()
        if self.random.random() < 0.03:
            await asyncio.sleep(self.part.lease_seconds * 1.2)  # so slow that the lease runs out
        messages = list(popped.messages)
        self.random.shuffle(messages)
        if self.random.random() < 0.5:
            await self.answer(messages, popped)
            return
        for message in messages:
            await self.answer([message], popped)
            if self.random.random() < self.part.dies_holding / 4:
                kill_oneself()

    async def answer(self, messages: Sequence[Message], popped: Popped) -> None:
        assert popped.lease_id is not None
        number, _ = parse_lease_id(popped.lease_id)
        acks = [
            ack_of(
                message,
                popped.lease_id,
                status_of(message),
                group=self.part.group,
                error="asked for",
            )
            for message in messages
        ]
        about = [
            (self.part.group, number, message.partition_id, message.seq, str(ack.status))
            for message, ack in zip(messages, acks, strict=True)
        ]
        for fields in about:
            self.log.write(Asked(*fields, at=CLOCK.now()))
        for fields, answer in zip(about, await self.store.ack(acks), strict=True):
            error = answer.code if isinstance(answer, MonarqError) else None
            self.log.write(Answered(*fields, error=error))
            if isinstance(answer, MonarqError) and not isinstance(answer, LeaseError):
                raise answer


def status_of(message: Message) -> AckStatus:
    """Some messages always fail, some the first time."""
    number = int(message.payload)
    if number % 23 == 0 or (number % 7 == 0 and message.attempts == 1):
        return AckStatus.FAILED
    return AckStatus.COMPLETED


async def main(part: Part) -> None:
    async with await open_store(part.address, clock=CLOCK, schema=part.schema) as store:
        if part.dies_after is not None:
            timer = threading.Timer(part.dies_after, kill_oneself)
            timer.daemon = True
            timer.start()
        process = Process(part, store)
        await (process.push() if part.role == "push" else process.consume())


if __name__ == "__main__":
    asyncio.run(main(msgspec.json.decode(sys.argv[1], type=Part)))
