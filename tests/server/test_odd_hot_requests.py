"""Odd texts and JSON values in every field of push, pop, ack, renew and transaction get the same
answer on all kinds of store, and never a 5xx."""

from collections.abc import Iterator, Mapping
from contextlib import AsyncExitStack
from typing import Any

import msgspec
import pytest
from msgspec import Struct

from monarq.wire.ack import AckBatchBody, AckBody
from monarq.wire.lease import ExtendBody
from monarq.wire.pop import PopQuery
from monarq.wire.push import PushBody, PushColumnsBody, PushItemBody
from monarq.wire.transaction import AckOperation, PushOperation, TransactionBody
from tests.server.application import Answered, api_on
from tests.server.test_odd_operations import JSON, TEXTS, as_body, as_target
from tests.shared_postgres import POSTGRES_NAMES

LEASE = "1-0123456789abcdef"
ITEM = {"queue": b'"q"', "payload": b"1"}
ACK = {"transactionId": b'"t"', "partitionId": b'"1"', "leaseId": b'"%s"' % LEASE.encode()}
COLUMNS = {"queue": b'"q"', "payloads": b"[1, 2]"}

#: Path, struct of the fields, sound fields, and the body around them.
BODIES: dict[str, tuple[str, type[Struct], dict[str, bytes], bytes]] = {
    "push": ("/api/v1/push", PushBody, {"items": b"[%s]" % as_body(ITEM)}, b"%s"),
    "pushed item": ("/api/v1/push", PushItemBody, ITEM, b'{"items":[%s]}'),
    "columns": ("/api/v1/push/columns", PushColumnsBody, COLUMNS, b"%s"),
    "ack": ("/api/v1/ack", AckBody, ACK, b"%s"),
    "ack of many": ("/api/v1/ack/batch", AckBody, ACK, b'{"acknowledgments":[%s]}'),
    "ack of a lease": ("/api/v1/ack/batch", AckBatchBody, {"leaseId": ACK["leaseId"]}, b"%s"),
    "ack and pop": ("/api/v1/pop/queue/q", AckBatchBody, {"leaseId": ACK["leaseId"]}, b"%s"),
    "renew": (f"/api/v1/lease/{LEASE}/extend", ExtendBody, {"seconds": b"10"}, b"%s"),
    "transaction": (
        "/api/v1/transaction",
        TransactionBody,
        {"operations": b'[{"type":"push","items":[%s]}]' % as_body(ITEM)},
        b"%s",
    ),
    "push in a transaction": (
        "/api/v1/transaction",
        PushOperation,
        {"type": b'"push"', "items": b"[%s]" % as_body(ITEM)},
        b'{"operations":[%s]}',
    ),
    "ack in a transaction": (
        "/api/v1/transaction",
        AckOperation,
        {"type": b'"ack"', **ACK},
        b'{"operations":[%s]}',
    ),
}
POPS = (
    "/api/v1/pop",
    "/api/v1/pop/queue/{queue}",
    "/api/v1/pop/queue/{queue}/partition/{partition}",
)


@pytest.mark.parametrize("name", BODIES)
async def test_every_store_answers_odd_bodies_alike(
    name: str, postgres_servers: Mapping[str, str]
) -> None:
    path, kind, sound, around = BODIES[name]
    await _compare(
        "POST", ((path, body) for body in _bodies(kind, sound, around)), postgres_servers
    )


@pytest.mark.parametrize("path", POPS)
async def test_every_store_answers_odd_pops_alike(
    path: str, postgres_servers: Mapping[str, str]
) -> None:
    await _compare("GET", ((target, None) for target in _targets(path)), postgres_servers)


async def test_every_store_answers_odd_leases_alike(postgres_servers: Mapping[str, str]) -> None:
    targets = (as_target("/api/v1/lease/{leaseId}/extend", {"leaseId": text}) for text in TEXTS)
    await _compare("POST", ((target, None) for target in targets), postgres_servers)


def _bodies(kind: type[Struct], sound: dict[str, bytes], around: bytes) -> Iterator[bytes]:
    yield around % as_body(sound)
    for name in [*kind.__struct_encode_fields__, "odd"]:
        yield around % as_body({key: value for key, value in sound.items() if key != name})
        for value in JSON:
            yield around % as_body({**sound, name: value})
    for value in JSON:
        yield value
        yield around % value


def _targets(path: str) -> Iterator[str]:
    in_path = {name: "q" for name in ("queue", "partition") if f"{{{name}}}" in path}
    sound = {"timeout": "0"} if in_path else {"timeout": "0", "namespace": "n"}
    yield as_target(path, in_path, sound)
    for name in [*PopQuery.__struct_encode_fields__, "odd"]:
        for text in TEXTS:
            yield as_target(path, in_path, {**sound, name: text})
    for name in in_path:
        for text in TEXTS:
            yield as_target(path, {**in_path, name: text}, sound)


async def _compare(
    method: str,
    requests: Iterator[tuple[str, bytes | None]],
    postgres_servers: Mapping[str, str],
) -> None:
    async with AsyncExitStack() as stack:
        apis = [
            await stack.enter_async_context(api_on(name, postgres_servers))
            for name in ("memory", POSTGRES_NAMES[-1])
        ]
        for target, body in requests:
            answers = [await api.request(method, target, body) for api in apis]
            memory, postgres = map(_told, answers)
            assert memory == postgres, (target, body, answers)
            assert answers[0].status < 500, (target, body, answers)


def _told(answer: Answered) -> tuple[int, list[Any]]:
    """Return the status, and the code or outcome of each thing that was asked for."""
    if not answer.body:
        return answer.status, []
    found = msgspec.json.decode(answer.body)
    rows = found if isinstance(found, list) else found.get("results", [found])
    return answer.status, [
        [row.get(name) for name in ("code", "status", "success", "error")] for row in rows
    ]
