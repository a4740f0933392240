"""Pop over the API: what is delivered, how it waits, and what it refuses."""

import asyncio
from typing import Any
from urllib.parse import quote

import pytest

from monarq.server.exchange import Pending
from tests.server.application import BOUND, Api, answered


async def test_the_answer_has_what_clients_read(api: Api) -> None:
    pushed = (await api.push({"queue": "q", "payload": {"n": 1}, "partition": "p"}))[0]
    popped = await api.pop("q", "consumerGroup=g")
    lease = popped["leaseId"]
    message = popped["messages"][0]
    assert isinstance(lease, str)
    assert {key: value for key, value in popped.items() if key != "messages"} == {
        "success": True,
        "queue": "q",
        "partition": "p",
        "partitionId": pushed["partition_id"],
        "leaseId": lease,
        "consumerGroup": "g",
    }
    assert message == {
        "id": pushed["message_id"],
        "transactionId": pushed["transaction_id"],
        "traceId": None,
        "data": {"n": 1},
        "createdAt": "2023-11-14T22:13:20.000000Z",
        "queue": "q",
        "partition": "p",
        "partitionId": pushed["partition_id"],
        "leaseId": lease,
        "consumerGroup": "g",
        "seq": 1,
        "attempts": 1,
        "retryCount": 0,
        "producerSub": None,
    }


async def test_nothing_there_is_204_without_a_body(api: Api) -> None:
    await api.configure("empty")
    for target in ("/api/v1/pop/queue/empty", "/api/v1/pop?namespace=none"):
        answer = await api.get(target)
        assert (answer.status, answer.body) == (204, b"")


async def test_a_queue_that_does_not_exist_is_an_empty_queue(api: Api) -> None:
    assert await api.pop("none") is None
    assert (await api.broker.store.list_queues()).rows == []


NAMES = [
    "plain",
    "with space",
    "slash/in/name",
    "/",
    "per%cent",
    "%2F",
    "%",
    "quest?ion",
    "ha#sh",
    "a+b",
    "a&b=c",
    ".",
    "..",
    "ünïcödé",
    "\U0001f600",
    "'\";--",
    "\\",
    "{queue}",
    "partition",
    "x" * 255,
]


async def test_what_can_be_pushed_to_can_be_popped_from(api: Api) -> None:
    for name in NAMES:
        await api.push({"queue": name, "partition": name, "payload": name})
    for name in NAMES:
        path = quote(name, safe="")
        answer = await api.get(f"/api/v1/pop/queue/{path}/partition/{path}?consumerGroup={path}")
        assert answer.status == 200, answer
        assert answer.json["messages"][0]["data"] == name
        assert [answer.json[key] for key in ("queue", "partition", "consumerGroup")] == [name] * 3


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("batch=0", "batch"),
        ("batch=-1", "batch"),
        ("batch=1.5", "batch"),
        ("batch=ten", "batch"),
        ("batch=", "batch"),
        ("batch=null", "batch"),
        ("batch=1&batch=2", "batch"),
        ("batch=" + "9" * 5_000, "batch"),
        ("partitions=0", "partitions"),
        ("wait=maybe", "wait"),
        ("wait=", "wait"),
        ("timeout=-1", "timeout"),
        ("timeout=nan", "timeout"),
        ("timeout=soon", "timeout"),
        ("leaseTime=0", "leaseTime"),
        ("leaseTime=inf", "leaseTime"),
        ("autoAck=yess", "autoAck"),
        ("subscriptionFrom=yesterday", "subscriptionFrom"),
        ("subscriptionFrom=", "subscriptionFrom"),
        ("subscriptionFrom=2023-11-31", "subscriptionFrom"),
        ("subscriptionFrom=2023-11-14T25:00:00", "subscriptionFrom"),
        ("subscriptionFrom=20231114", "subscriptionFrom"),
        ("subscriptionFrom=2023-13-14T00:00:00Z", "subscriptionFrom"),
        ("consumerGroup=", "consumerGroup"),
        ("consumerGroup=%00", "consumerGroup"),
        ("consumerGroup=%FF", "UTF-8"),
        ("consumerGroup=" + "x" * 256, "consumerGroup"),
        ("conflation=true", "conflation"),
        ("bacth=5", "bacth"),
        ("%F0%9F%98%80=1", "\U0001f600"),
    ],
)
async def test_a_bad_parameter_is_refused_by_name_and_leases_nothing(
    memory_api: Api, query: str, field: str
) -> None:
    await memory_api.push_payloads("q", 1)
    answer = await memory_api.get(f"/api/v1/pop/queue/q?{query}")
    assert (answer.status, answer.code) == (400, "invalid_request"), answer
    assert field in answer.error
    assert await memory_api.data("q") == [1]


@pytest.mark.parametrize(
    "path",
    [
        "/api/v1/pop/queue/" + "x" * 256,
        "/api/v1/pop/queue/a%00b",
        "/api/v1/pop/queue/a%0Ab/partition/c",
        "/api/v1/pop/queue/q/partition/" + "x" * 256,
        "/api/v1/pop/queue/%FF",
        "/api/v1/pop",
        "/api/v1/pop?namespace=&task=",
    ],
)
async def test_a_bad_name_is_refused(memory_api: Api, path: str) -> None:
    answer = await memory_api.get(path)
    assert (answer.status, answer.code) == (400, "invalid_request")


@pytest.mark.parametrize("path", ["/api/v1/pop/queue/", "/api/v1/pop/queue//partition/p"])
async def test_no_name_at_all_is_no_route(memory_api: Api, path: str) -> None:
    assert (await memory_api.get(path)).status == 404


@pytest.mark.parametrize(
    "query",
    ["wait=False", "wait=0", "autoAck=True", "batch=1&"],
)
async def test_what_queens_clients_send_is_taken(memory_api: Api, query: str) -> None:
    await memory_api.push_payloads("q", 1)
    assert await memory_api.data("q", query) == [1]


async def test_autopilot_chooses_what_is_not_given_and_says_what(memory_api: Api) -> None:
    for number in range(20):
        await memory_api.push_payloads("q", *range(20), partition=f"p{number}")
    popped = await memory_api.pop("q", "autopilot=true")
    assert len(popped["messages"]) > 1
    assert popped["autopilot"]["batch"] >= len(popped["messages"])
    popped = await memory_api.pop("q", "autopilot=true&batch=3&partitions=1")
    assert popped["autopilot"] == {"batch": 3, "partitions": 1}
    assert len(popped["messages"]) == 3
    assert "autopilot" not in await memory_api.pop("q", "batch=2")


async def test_a_waiting_pop_gets_what_is_pushed_later(api: Api) -> None:
    waiting = asyncio.create_task(api.pop("q", "wait=true&timeout=20000"))
    await asyncio.sleep(0)
    await api.push_payloads("q", "late")
    async with asyncio.timeout(BOUND):
        assert (await waiting)["messages"][0]["data"] == "late"


async def parked(api: Api) -> None:
    """Until a pop waits."""
    while api.broker.health().parked == 0:  # noqa: ASYNC110 - nobody tells of it
        await asyncio.sleep(0)


async def test_a_wait_that_runs_out_is_204_on_time(api: Api) -> None:
    waiting = asyncio.create_task(api.pop("q", "wait=true&timeout=150"))
    await asyncio.wait_for(parked(api), BOUND)
    api.clock.advance(0.149)
    assert not (await asyncio.wait([waiting], timeout=0.05))[0]
    api.clock.advance(0.001)
    async with asyncio.timeout(BOUND):
        assert await waiting is None


@pytest.mark.parametrize(
    "query", ["timeout=20000", "wait=false&timeout=20000", "wait=true&timeout=0"]
)
async def test_without_wait_the_answer_is_there_at_once(memory_api: Api, query: str) -> None:
    """The clock stands still: a pop that waited would never be answered."""
    assert await memory_api.pop("q", query) is None


async def test_a_very_long_wait_is_taken_for_a_long_one(memory_api: Api) -> None:
    waiting = asyncio.create_task(memory_api.pop("q", "wait=true&timeout=999999999999"))
    await asyncio.sleep(0)
    await memory_api.push_payloads("q", 1)
    async with asyncio.timeout(BOUND):
        assert await waiting is not None


async def test_auto_ack_leaves_no_lease_and_is_delivered_once(api: Api) -> None:
    await api.push_payloads("q", 1, 2)
    popped = await api.pop("q", "autoAck=true")
    assert popped["leaseId"] is popped["messages"][0]["leaseId"] is None
    assert await api.data("q") == [2]
    assert await api.pop("q") is None


async def test_several_partitions_come_under_one_lease_and_batch_caps_the_total(api: Api) -> None:
    for name in "abcd":
        await api.push_payloads("q", *(f"{name}{n}" for n in range(3)), partition=name)
    popped = await api.pop("q", "batch=7&partitions=3")
    messages = popped["messages"]
    assert [message["data"] for message in messages] == ["a0", "a1", "a2", "b0", "b1", "b2", "c0"]
    assert {message["leaseId"] for message in messages} == {popped["leaseId"]}
    assert [message["partition"] for message in messages] == list("aaabbbc")
    assert (popped["partition"], popped["partitionId"]) == ("a", messages[0]["partitionId"])
    assert (await api.pop("q", "batch=7&partitions=3"))["partition"] == "d"


async def test_each_group_gets_everything(api: Api) -> None:
    await api.push_payloads("q", 1)
    assert await api.data("q", "consumerGroup=one&autoAck=true") == [1]
    assert await api.data("q", "consumerGroup=two&autoAck=true") == [1]
    assert await api.data("q", "autoAck=true") == [1]
    assert await api.data("q", "consumerGroup=one&autoAck=true") == []


async def test_a_group_may_begin_with_what_is_new(api: Api) -> None:
    starts = ["subscriptionMode=new", "subscriptionMode=new-only", "subscriptionFrom=now"]
    await api.push_payloads("q", "old")
    for group, start in enumerate(starts):
        assert await api.pop("q", f"consumerGroup={group}&{start}") is None
    await api.push_payloads("q", "new")
    for group, start in enumerate(starts):
        assert await api.data("q", f"consumerGroup={group}&{start}&batch=9") == ["new"]


async def test_a_group_may_begin_at_a_time(api: Api) -> None:
    await api.push_payloads("q", "old")
    api.clock.advance(60)
    await api.push_payloads("q", "new")
    start = quote("2023-11-14T23:14:20+01:00")
    assert await api.data("q", f"consumerGroup=g&batch=9&subscriptionFrom={start}") == ["new"]


async def test_a_group_cannot_begin_in_the_future(api: Api) -> None:
    await api.push_payloads("q", 1)
    answer = await api.get("/api/v1/pop/queue/q?subscriptionFrom=2999-01-01T00:00:00Z")
    assert (answer.status, answer.code) == (400, "invalid_request")


async def test_a_pop_by_label_spans_queues_and_each_message_names_its_own(api: Api) -> None:
    for queue in ("one", "two"):
        await api.push({"queue": queue, "payload": queue, "namespace": "n", "task": "t"})
    got: list[Any] = []
    for query in ("namespace=n", "namespace=n&task=t"):
        answer = await api.get(f"/api/v1/pop?{query}")
        got += answer.json["messages"]
        assert answer.json["queue"] == got[-1]["queue"]
    assert [message["data"] for message in got] == [message["queue"] for message in got]
    assert {message["queue"] for message in got} == {"one", "two"}
    assert (await api.get("/api/v1/pop?task=t")).status == 204


async def test_attempts_count_the_deliveries(api: Api) -> None:
    await api.push_payloads("q", 1)
    for attempt in (1, 2, 3):
        popped = await api.pop_soon("q", "leaseTime=10")
        message = popped["messages"][0]
        assert (message["attempts"], message["retryCount"]) == (attempt, attempt - 1)
        assert await api.pop("q") is None
        api.clock.advance(10.001)


async def test_what_could_not_be_written_to_the_client_is_given_back_uncounted(api: Api) -> None:
    await api.push_payloads("q", 1)
    pending = api.handle("GET", "/api/v1/pop/queue/q?consumerGroup=g&batch=5")
    assert isinstance(pending, Pending)
    result = await pending.future
    assert result.messages
    assert pending.undelivered is not None
    pending.undelivered(result)
    popped = await api.pop("q", "consumerGroup=g&wait=true&timeout=20000")
    assert popped["messages"][0]["attempts"] == 1


async def test_a_client_that_went_away_while_it_waited_is_given_nothing(api: Api) -> None:
    gone = api.handle("GET", "/api/v1/pop/queue/q?wait=true")
    assert isinstance(gone, Pending)
    stays = api.handle("GET", "/api/v1/pop/queue/q?wait=true")
    gone.future.cancel()
    await api.push_payloads("q", 1)
    async with asyncio.timeout(BOUND):
        answer = await answered(stays)
    assert answer.json["messages"][0]["attempts"] == 1


async def test_head_leases_nothing(memory_api: Api) -> None:
    await memory_api.push_payloads("q", 1)
    answer = await memory_api.request("HEAD", "/api/v1/pop/queue/q")
    assert answer.status == 405
    assert "GET" in answer.headers["Allow"]
    assert await memory_api.data("q") == [1]


async def test_work_queues_have_no_groups_or_partitions(api: Api) -> None:
    await api.configure("jobs", "work")
    await api.push({"queue": "jobs", "payload": 1})
    for target in ("jobs?consumerGroup=g", "jobs/partition/p"):
        answer = await api.get(f"/api/v1/pop/queue/{target}")
        assert (answer.status, answer.code) == (400, "invalid_request")
    assert await api.data("jobs/partition/Default") == [1]


async def test_the_same_target_again_is_not_the_same_answer(memory_api: Api) -> None:
    """Targets are remembered; what they meet is not."""
    await memory_api.push_payloads("q", 1, 2)
    target = "/api/v1/pop/queue/q?autoAck=true"
    got = [(await memory_api.get(target)) for _ in range(3)]
    assert [answer.status for answer in got] == [200, 200, 204]
    assert [answer.json["messages"][0]["data"] for answer in got[:2]] == [1, 2]
