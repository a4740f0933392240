"""Pushes of one lane to a broker: the next is sent before the one before it is answered, and never
stored without it."""

import json
import re
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from monarq.errors import InvalidRequestError, QueueFullError
from monarq.model import PushItem
from monarq.spark.sink_http import BrokerLanes, Written
from monarq.spark.sink_requests import PushRequest
from tests.server.serving import ServerProcess
from tests.spark.seeding import fill, make_queue, messages_of


def pushed(*numbers: object, size: int = 0, partition: str = "p") -> PushRequest:
    payloads = [{"n": number, "filler": "x" * size} for number in numbers]
    items = [
        {"transactionId": f"t-{number}", "payload": payload}
        for number, payload in zip(numbers, payloads, strict=True)
    ]
    text = json.dumps(items)[1:-1].encode()
    head = b'{"answer":"counts","queue":"q","partition":"%b","items":[' % partition.encode()
    body = (head, memoryview(text), b"]}")
    return PushRequest(len(numbers), "/api/v1/push", body, frozenset({f"q\n{partition}"}))


def sent(url: str, requests: list[PushRequest], retry_seconds: float = 60) -> Written:
    with BrokerLanes(url, None, 1, retry_seconds) as lanes:
        for request in requests:
            lanes.send(0, request)
    return lanes.written


def numbers_of(url: str) -> list[int]:
    return [json.loads(message.payload)["n"] for message in messages_of(url, "q")]


def refusals(broker: ServerProcess) -> float:
    metrics = broker.get("/metrics/prometheus").body.decode()
    [found] = re.findall(r'^monarq_call_errors_total\{call="push"\} (\S+)$', metrics, re.MULTILINE)
    return float(found)


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.parametrize("size", [0, 300_000])
def test_pushes_are_carried_out_in_their_order(
    broker: ServerProcess, store_url: str, size: int
) -> None:
    pushes = [pushed(n, n + 1, size=size) for n in range(0, 40, 2)]
    assert sent(broker.url, pushes) == Written(40, 0)
    assert numbers_of(store_url) == list(range(40))
    assert sent(broker.url, pushes[3:5]) == Written(4, 4)


def test_after_a_push_that_fails_none_is_carried_out(broker: ServerProcess, store_url: str) -> None:
    make_queue(store_url, "q", max_size=2)
    with pytest.raises(QueueFullError):
        sent(broker.url, [pushed(0), pushed(1, 2), pushed(3)], retry_seconds=0)
    assert numbers_of(store_url) == [0]


def test_pushes_to_other_partitions_do_not_wait_for_each_other(
    broker: ServerProcess, store_url: str
) -> None:
    partitions = "aabbbacba"
    pushes = [pushed(n, partition=name) for n, name in enumerate(partitions)]
    assert sent(broker.url, pushes) == Written(len(partitions), 0)
    for name in set(partitions):
        found = [
            json.loads(m.payload)["n"] for m in messages_of(store_url, "q") if m.partition == name
        ]
        assert found == [n for n, other in enumerate(partitions) if other == name]


def test_a_push_that_is_refused_for_good_is_told(broker: ServerProcess, store_url: str) -> None:
    malformed = PushRequest(1, "/api/v1/push", (b'{"items":[', b"1", b"]}"), frozenset({"q\np"}))
    with pytest.raises(InvalidRequestError):
        sent(broker.url, [pushed(0), malformed, pushed(2)])
    assert numbers_of(store_url) == [0]


def test_the_next_push_is_stored_after_one_that_is_repeated(
    broker: ServerProcess, store_url: str
) -> None:
    make_queue(store_url, "q", max_size=2)
    fill(store_url, [PushItem("q", b'{"n":-1}', "p")])
    with ThreadPoolExecutor(1) as other:
        refused = refusals(broker)
        sending = other.submit(sent, broker.url, [pushed(0, 1), pushed(2), pushed(3)])
        try:
            until(lambda: refusals(broker) >= refused + 4)
            assert numbers_of(store_url) == [-1]
        finally:
            make_queue(store_url, "q", max_size=100)
        assert sending.result(60) == Written(4, 0)
    assert numbers_of(store_url) == [-1, 0, 1, 2, 3]


def test_pushes_keep_their_order_though_the_broker_is_killed_under_them(
    broker: ServerProcess, store_url: str
) -> None:
    with BrokerLanes(broker.url, None, 1, 60) as lanes, ThreadPoolExecutor(1) as pool:

        def push() -> None:
            for number in range(3000):
                lanes.send(0, pushed(number))

        pushing = pool.submit(push)
        for stored in range(300, 3000, 300):
            until(lambda stored=stored: lanes.written.rows >= stored)  # type: ignore[misc]
            broker.kill()
            broker.start()
        pushing.result()
    assert numbers_of(store_url) == list(range(3000))
