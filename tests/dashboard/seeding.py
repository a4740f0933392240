"""Real load for the dashboard: queues that flow, one that is stuck, dead letters, jobs.

Over HTTP alone, as any client would. Everything is answered before the next begins, so that what
a page shows is known.
"""

import contextlib
import http.client
import json
import time
from typing import Any
from urllib.parse import quote

from tests.server.serving import ServerProcess

STUCK_QUEUE = "orders"
STUCK_GROUP = "billing"
STUCK_PARTITION = "customer-17"
POISON = {"customer": 17, "total": "12,50", "note": "no number"}
ERROR = "ValueError: could not convert string to float: '12,50'"

BOUND = 60.0


class Caller:
    """Calls the API on one kept connection."""

    def __init__(self, server: ServerProcess, headers: dict[str, str] | None = None) -> None:
        self._server = server
        self._headers = server.local_proof() | (headers or {})
        self._connection = http.client.HTTPConnection(server.host, server.port, timeout=BOUND)

    def close(self) -> None:
        self._connection.close()

    def call(self, method: str, target: str, body: Any = None) -> Any:
        headers = {**self._headers, "Content-Type": "application/json"}
        self._connection.request(
            method, target, None if body is None else json.dumps(body), headers
        )
        answer = self._connection.getresponse()
        content = answer.read()
        assert answer.status < 300, (method, target, answer.status, content)
        return json.loads(content) if content else None

    def get(self, target: str) -> Any:
        return self.call("GET", target)

    def post(self, target: str, body: Any = None) -> Any:
        return self.call("POST", target, body)

    # --- what most loads are made of -----------------------------------------------------------

    def configure(self, queue: str, kind: str = "ordered", **options: Any) -> None:
        self.post("/api/v1/configure", {"queue": queue, "kind": kind, "options": options})

    def push(self, queue: str, *payloads: Any, **fields: Any) -> Any:
        items = [{"queue": queue, "payload": payload, **fields} for payload in payloads]
        return self.post("/api/v1/push", {"items": items})

    def pop(self, queue: str, **options: Any) -> Any:
        query = "&".join(f"{name}={quote(str(value))}" for name, value in options.items())
        return self.get(f"/api/v1/pop/queue/{quote(queue, safe='')}?{query}")

    def answer(self, popped: Any, status: str = "completed", error: str | None = None) -> None:
        self.post(
            "/api/v1/ack/batch",
            {
                "leaseId": popped["leaseId"],
                "status": status,
                "error": error,
                "consumerGroup": popped["consumerGroup"],
            },
        )

    def consume(self, queue: str, group: str, **options: Any) -> int:
        popped = self.pop(queue, consumerGroup=group, batch=1000, partitions=100, **options)
        if popped is None:
            return 0
        self.answer(popped)
        return len(popped["messages"])

    def fail(self, queue: str, group: str, partition: str, error: str) -> None:
        """Let the next message of a partition fail, when it can be had."""
        where = f"/api/v1/pop/queue/{quote(queue, safe='')}/partition/{quote(partition, safe='')}"
        query = f"consumerGroup={quote(group)}&consumer=consumer-3&wait=true&timeout=20000"
        popped = self.get(f"{where}?{query}")
        assert popped is not None, "nothing to fail on"
        self.answer(popped, "failed", error)


@contextlib.contextmanager
def calling(server: ServerProcess, headers: dict[str, str] | None = None) -> Any:
    caller = Caller(server, headers)
    try:
        yield caller
    finally:
        caller.close()


def seed(caller: Caller) -> None:
    """A shop: orders that are stuck, mails that flow, payments that died, jobs that ran."""
    _stuck_orders(caller)
    for day in range(6):
        caller.push("mails", *({"to": f"ann{n}@shop.example", "day": day} for n in range(20)))
        caller.consume("mails", "smtp")
    caller.push("mails", *({"to": f"late{n}@shop.example"} for n in range(7)))
    _dead_payments(caller)
    _jobs(caller)
    caller.configure("audit")
    caller.push("audit", *({"event": n} for n in range(150)))
    caller.configure("holiday", maxSize=50)
    caller.push("holiday", *range(12))
    caller.post("/api/v1/resources/queues/holiday/pause")


def _stuck_orders(caller: Caller) -> None:
    caller.configure(STUCK_QUEUE, retryDelay=100, retryLimit=1000, leaseTime=30)
    for customer in range(24):
        caller.push(
            STUCK_QUEUE,
            *({"customer": customer, "total": 10 + n} for n in range(3)),
            partition=f"customer-{customer}",
        )
    caller.consume(STUCK_QUEUE, "shipping")
    caller.consume(STUCK_QUEUE, STUCK_GROUP)
    caller.push(STUCK_QUEUE, POISON, partition=STUCK_PARTITION, transactionId="order-4711")
    caller.push(
        STUCK_QUEUE, *({"customer": 17, "total": n} for n in range(40)), partition=STUCK_PARTITION
    )
    for _ in range(4):
        caller.fail(STUCK_QUEUE, STUCK_GROUP, STUCK_PARTITION, ERROR)
    caller.consume(STUCK_QUEUE, "shipping")
    [row] = caller.get(
        f"/api/v1/messages?queue={STUCK_QUEUE}&partition={STUCK_PARTITION}&firstSeq=4&limit=1"
    )["messages"]
    caller.post(
        "/api/v1/traces",
        {
            "transactionId": "order-4711",
            "partitionId": row["partitionId"],
            "eventType": "received",
            "data": {"by": "web", "cart": 3},
            "traceNames": ["order-4711"],
        },
    )


def _dead_payments(caller: Caller) -> None:
    caller.configure("payments", retryLimit=0)
    for number, error in enumerate(
        ["TimeoutError: bank did not answer\n  at pay()"] * 5
        + ["CardDeclined: insufficient funds"] * 3
        + ["KeyError: 'iban'"]
    ):
        caller.push("payments", {"invoice": 100 + number}, transactionId=f"invoice-{number}")
        caller.fail("payments", "ledger", "Default", error)


def _jobs(caller: Caller) -> None:
    caller.configure("thumbnails", "work", maxAttempts=2)
    caller.push("thumbnails", *({"image": f"{n}.png"} for n in range(8)))
    for number in range(3):
        popped = caller.pop("thumbnails", consumer="worker-1")
        caller.answer(popped, "failed" if number == 2 else "completed", "OSError: bad header")
    caller.push("thumbnails", {"image": "later.png"}, delaySeconds=3600)


def wait_until(what: Any, message: str, seconds: float = BOUND) -> Any:
    """Wait on a thing itself: the first true value of `what()`."""
    deadline = time.monotonic() + seconds
    while True:
        value = what()
        if value:
            return value
        assert time.monotonic() < deadline, message
        time.sleep(0.05)
