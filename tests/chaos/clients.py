"""The clients of a chaos run: senders that push, consumers that pop and ack, all by HTTP.

They do as real ones do, and some of it badly: they stall past their lease, fail messages, ack at
another broker than they popped from. What they were answered, they write down.
"""

import asyncio
import random
import time
from collections.abc import Sequence
from typing import Any

from tests.chaos.calls import Connection, NoAnswerError
from tests.chaos.events import (
    AckAnswered,
    AckAsked,
    Log,
    Popped,
    PushAnswered,
    PushUnanswered,
    Seen,
)


class Sender:
    """Pushes 1, 2, 3 … to one partition through one broker, the next only when it knows what
    became of the last: with transaction ids it repeats until it is answered, without it goes on.
    """

    def __init__(
        self, name: str, queue: str, partition: str | None, port: int, *, with_ids: bool, log: Log
    ) -> None:
        self.name = name
        self.statuses: dict[str, int] = {}
        self.longest = 0.0
        """Seconds that the slowest answer took."""
        self._queue = queue
        self._partition = partition
        self._connection = Connection(port)
        self._with_ids = with_ids
        self._log = log
        self._chance = random.Random(name)
        self._number = 0
        self._is_over = False

    def stop(self) -> None:
        self._is_over = True

    async def run(self) -> None:
        try:
            while not self._is_over:
                count = self._chance.randrange(1, 6)
                numbers = list(range(self._number + 1, self._number + count + 1))
                self._number += count
                await self._push(numbers)
                await asyncio.sleep(self._chance.uniform(0.01, 0.06))
        finally:
            self._connection.close()

    async def _push(self, numbers: list[int]) -> None:
        body = {"items": [self._item(number) for number in numbers]}
        while True:
            asked_at = time.monotonic()
            try:
                status, answer = await self._connection.call("POST", "/api/v1/push", body)
                reason = "" if status == 201 else f"{status} {answer.get('code')}"
            except NoAnswerError as error:
                reason = str(error)
            now = time.monotonic()
            self.longest = max(self.longest, now - asked_at)
            if not reason:
                statuses = [item["status"] for item in answer]
                for name in statuses:
                    self.statuses[name] = self.statuses.get(name, 0) + 1
                self._log.write(PushAnswered(self._queue, self.name, numbers, statuses, now))
                return
            self.statuses[reason] = self.statuses.get(reason, 0) + 1
            self._log.write(
                PushUnanswered(self._queue, self.name, numbers, reason, self._with_ids, now)
            )
            await asyncio.sleep(0.05)
            if not self._with_ids:
                return

    def _item(self, number: int) -> dict[str, Any]:
        item: dict[str, Any] = {
            "queue": self._queue,
            "payload": {"sender": self.name, "number": number, "filling": "x" * 100},
        }
        if self._partition is not None:
            item["partition"] = self._partition
        if self._with_ids:
            item["transactionId"] = f"{self.name}.{number}"
        return item


class Consumer:
    """Pops and acks until it is stopped."""

    def __init__(
        self,
        name: str,
        queue: str,
        group: str | None,
        ports: Sequence[int],
        *,
        lease_seconds: float,
        log: Log,
    ) -> None:
        self.name = name
        self.received = 0
        self.refused: dict[str, int] = {}
        self._queue = queue
        self._group = group
        self._connections = [Connection(port) for port in ports]
        self._lease_seconds = lease_seconds
        self._log = log
        self._chance = random.Random(name)
        self._is_calm = False

    def calm_down(self) -> None:
        """From now on only do what empties the queue."""
        self._is_calm = True

    async def run(self) -> None:
        try:
            while True:
                popped = await self._pop()
                if popped is not None:
                    await self._work(popped)
        finally:
            for connection in self._connections:
                connection.close()

    async def _pop(self) -> tuple[Popped, list[dict[str, Any]]] | None:
        batch, partitions = self._chance.choice([1, 5, 20]), self._chance.choice([1, 1, 3])
        if self._is_calm:
            batch = 500
        path = f"/api/v1/pop/queue/{self._queue}?batch={batch}&wait=true&timeout=1500"
        if self._group is not None:
            path += f"&consumerGroup={self._group}&partitions={partitions}"
        asked_at = time.monotonic()
        try:
            status, answer = await self._chance.choice(self._connections).call("GET", path)
        except NoAnswerError:
            status, answer = 0, None
        if status == 204:
            return None
        if status != 200:
            await asyncio.sleep(0.05)
            return None
        messages = answer["messages"]
        self.received += len(messages)
        popped = Popped(
            self._queue,
            self._group or "",
            self.name,
            int(answer["leaseId"].partition("-")[0]),
            [
                Seen(
                    int(message["partitionId"]),
                    message["seq"],
                    message["data"]["sender"],
                    message["data"]["number"],
                    message["attempts"],
                )
                for message in messages
            ],
            asked_at,
            time.monotonic(),
        )
        self._log.write(popped)
        return popped, messages

    async def _work(self, found: tuple[Popped, list[dict[str, Any]]]) -> None:
        popped, messages = found
        mood = 1.0 if self._is_calm else self._chance.random()
        if mood < 0.02:
            await asyncio.sleep(self._lease_seconds * 1.5)  # and ack too late
        elif mood < 0.1:
            await asyncio.sleep(self._chance.uniform(0, self._lease_seconds / 2))
        if 0.02 <= mood < 0.04:
            return  # forgets all about it
        failed = [] if self._is_calm or self._chance.random() > 0.05 else messages[-1:]
        completed = messages[: len(messages) - len(failed)]
        if completed:
            await self._ack(popped, completed, "completed")
        if failed:
            await self._ack(popped, failed, "failed")

    async def _ack(self, popped: Popped, messages: list[dict[str, Any]], status: str) -> None:
        places = [(int(message["partitionId"]), message["seq"]) for message in messages]
        about = (popped.queue, popped.group, self.name, popped.lease, status)
        self._log.write(AckAsked(*about, places, time.monotonic()))
        acks = [
            {
                "transactionId": message["transactionId"],
                "partitionId": message["partitionId"],
                "leaseId": message["leaseId"],
                "status": status,
                **({"consumerGroup": self._group} if self._group is not None else {}),
            }
            for message in messages
        ]
        try:
            answer_status, answers = await self._chance.choice(self._connections).call(
                "POST", "/api/v1/ack/batch", {"acknowledgments": acks}
            )
        except NoAnswerError:
            return
        if answer_status != 200:
            return
        for place, answer in zip(places, answers, strict=True):
            error = None if answer["success"] else str(answer.get("code"))
            if error is not None:
                self.refused[error] = self.refused.get(error, 0) + 1
            self._log.write(AckAnswered(*about, place, error, time.monotonic()))
