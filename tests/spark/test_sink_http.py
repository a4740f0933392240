"""Pushes of one lane to a broker: the next is sent ahead, and never carried out too early."""

import json
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from monarq.errors import InvalidRequestError, QueueFullError
from monarq.model import PushItem
from monarq.spark.sink_http import BrokerLanes, Written
from monarq.spark.sink_requests import Body
from tests.server.serving import ServerProcess
from tests.spark.seeding import fill, make_queue, messages_of


def body(*numbers: object, size: int = 0) -> Body:
    payloads = [{"n": number, "filler": "x" * size} for number in numbers]
    items = [
        {"transactionId": f"t-{number}", "payload": payload}
        for number, payload in zip(numbers, payloads, strict=True)
    ]
    text = json.dumps(items)[1:-1].encode()
    return b'{"answer":"counts","queue":"q","items":[', memoryview(text), b"]}"


def sent(url: str, pushes: list[tuple[int, Body]], retry_seconds: float = 60) -> Written:
    with BrokerLanes(url, None, 1, retry_seconds) as lanes:
        for count, pushed in pushes:
            lanes.send(0, count, pushed)
    return lanes.written


def numbers_of(url: str) -> list[int]:
    return [json.loads(message.payload)["n"] for message in messages_of(url, "q")]


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.parametrize("size", [0, 300_000])
def test_pushes_are_carried_out_in_their_order(
    broker: ServerProcess, store_url: str, size: int
) -> None:
    pushes = [(2, body(n, n + 1, size=size)) for n in range(0, 40, 2)]
    assert sent(broker.url, pushes) == Written(40, 0)
    assert numbers_of(store_url) == list(range(40))
    assert sent(broker.url, pushes[3:5]) == Written(4, 4)


def test_after_a_push_that_fails_none_is_carried_out(broker: ServerProcess, store_url: str) -> None:
    make_queue(store_url, "q", max_size=2)
    with pytest.raises(QueueFullError):
        sent(broker.url, [(1, body(0)), (2, body(1, 2)), (1, body(3))], retry_seconds=0)
    assert numbers_of(store_url) == [0]


def test_a_push_that_is_refused_for_good_is_told(broker: ServerProcess, store_url: str) -> None:
    with pytest.raises(InvalidRequestError):
        sent(broker.url, [(1, body(0)), (1, (b'{"items":[', b"1", b"]}")), (1, body(2))])
    assert numbers_of(store_url) == [0]


def test_the_next_push_waits_for_one_that_is_repeated(store_url: str, tmp_path: Path) -> None:
    """Longer than the broker waits for the rest of a request."""
    make_queue(store_url, "q", max_size=2)
    fill(store_url, [PushItem("q", b'{"n":-1}')])
    settings = {"store": store_url, "data_dir": str(tmp_path / "b"), "body_timeout_seconds": 0.2}
    with ServerProcess(settings) as server, ThreadPoolExecutor(1) as other:
        sending = other.submit(sent, server.url, [(2, body(0, 1)), (1, body(2)), (1, body(3))])
        try:
            until(
                lambda: "slow_clients_total 1.0" in server.get("/metrics/prometheus").body.decode()
            )
            assert numbers_of(store_url) == [-1]
        finally:
            make_queue(store_url, "q", max_size=100)
        assert sending.result(60) == Written(4, 0)
    assert numbers_of(store_url) == [-1, 0, 1, 2, 3]
