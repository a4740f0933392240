"""Consumer groups over HTTP: how far they have come, moving and deleting them."""

from typing import Any
from urllib.parse import quote

import pytest

from monarq.times import iso
from tests.server.application import Api

GROUPS = "/api/v1/consumer-groups"


async def consume(api: Api, queue: str, group: str, batch: int = 100) -> list[Any]:
    return await api.data(queue, f"consumerGroup={group}&batch={batch}&autoAck=true")


async def test_groups_are_listed_with_their_lag_in_messages_and_seconds(api: Api) -> None:
    await api.push_payloads("a", 1, 2, 3)
    await consume(api, "a", "g", 1)
    api.clock.advance(30)
    await api.push_payloads("b", 1)
    await consume(api, "b", "g")
    [in_a, in_b] = (await api.get(GROUPS)).json["consumerGroups"]
    assert (in_a["name"], in_a["queueName"], in_a["lag"]) == ("g", "a", 2)
    assert in_a["lagSeconds"] == pytest.approx(30)
    assert (in_a["totalLag"], in_a["maxTimeLag"]) == (in_a["lag"], in_a["lagSeconds"])
    assert (in_b["lag"], in_b["lagSeconds"], in_b["completed"]) == (0, 0, 1)
    assert (await api.get(f"{GROUPS}?queue=b")).json["consumerGroups"] == [in_b]


async def test_pages_have_every_group_of_every_queue_once(memory_api: Api) -> None:
    for queue in "ab":
        await memory_api.push_payloads(queue, 1)
        for number in range(3):
            await consume(memory_api, queue, f"g{number}")
    seen: list[tuple[str, str]] = []
    after = ""
    while True:
        page = (await memory_api.get(f"{GROUPS}?limit=2{after}")).json
        seen += [(row["queueName"], row["name"]) for row in page["consumerGroups"]]
        if page["next"] is None:
            break
        after = f"&after={quote(page['next'])}"
    assert seen == [(queue, f"g{number}") for queue in "ab" for number in range(3)]
    found = (await memory_api.get(f"{GROUPS}?search=G1")).json["consumerGroups"]
    assert [row["name"] for row in found] == ["g1", "g1"]


async def test_lagging_groups_are_those_that_are_behind_that_long(api: Api) -> None:
    await api.push_payloads("a", 1, 2)
    await consume(api, "a", "behind", 1)
    await consume(api, "a", "through")
    api.clock.advance(100)
    behind = (await api.get(f"{GROUPS}/lagging?minLagSeconds=90")).json["consumerGroups"]
    assert [row["name"] for row in behind] == ["behind"]
    assert (await api.get(f"{GROUPS}/lagging?minLagSeconds=110")).json["consumerGroups"] == []
    assert len((await api.get(f"{GROUPS}/lagging")).json["consumerGroups"]) == 1
    assert (await api.get(f"{GROUPS}/lagging?minLagSeconds=-1")).status == 400


async def test_a_group_is_described_in_each_queue_with_its_cursors(api: Api) -> None:
    for partition in ("p", "r", "s"):
        await api.push_payloads("a", 1, 2, partition=partition)
    await api.push_payloads("b", 1)
    await consume(api, "b", "g")
    await api.pop("a/partition/r", "consumerGroup=g&batch=1")
    group = (await api.get(f"{GROUPS}/g")).json
    [in_a, in_b] = group["queues"]
    assert (in_a["queueName"], in_b["queueName"]) == ("a", "b")
    rows = {row["partition"]: row for row in in_a["partitions"]}
    assert rows.keys() == {"p", "r", "s"}
    assert rows["r"]["leaseActive"] is True
    assert rows["p"]["leaseActive"] is False
    assert (rows["p"]["position"], rows["p"]["lastSeq"], rows["p"]["lag"]) == (0, 2, 2)
    assert in_b["partitions"][0]["availableAt"] is None
    first = (await api.get(f"{GROUPS}/g?queue=a&limit=2")).json["queues"][0]
    token = first["partitionsNext"]
    rest = (await api.get(f"{GROUPS}/g?queue=a&limit=2&after={token}")).json["queues"][0]
    seen = [row["partition"] for row in (*first["partitions"], *rest["partitions"])]
    assert sorted(seen) == ["p", "r", "s"]
    for target in (f"{GROUPS}/nobody", f"{GROUPS}/g?queue=missing"):
        assert (await api.get(target)).json["queues"] == []


async def test_a_deleted_group_begins_anew(api: Api) -> None:
    await api.push_payloads("a", 1)
    await api.push_payloads("b", 2)
    for queue in "ab":
        await consume(api, queue, "g")
    answer = (await api.request("DELETE", f"{GROUPS}/g/queues/a", None, {})).json
    assert (answer["deleted"], answer["queues"], answer["queueName"]) == (True, 1, "a")
    assert await consume(api, "a", "g") == [1]
    assert await consume(api, "b", "g") == []
    answer = (await api.request("DELETE", f"{GROUPS}/g?deleteMetadata=true", None, {})).json
    assert (answer["deleted"], answer["queues"]) == (True, 2)
    again = await api.request("DELETE", f"{GROUPS}/g", None, {})
    assert (again.status, again.json["deleted"], again.json["queues"]) == (200, False, 0)


async def test_metadata_that_is_kept_lets_the_group_begin_where_it_first_did(api: Api) -> None:
    await api.push_payloads("q", "old")
    api.clock.advance(1)
    assert await api.pop("q", "consumerGroup=g&subscriptionMode=new") is None
    api.clock.advance(1)
    await api.push_payloads("q", "new")
    assert await consume(api, "q", "g") == ["new"]
    await api.request("DELETE", f"{GROUPS}/g/queues/q?deleteMetadata=false", None, {})
    assert await consume(api, "q", "g") == ["new"]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({"to": "start"}, [1, 2, 3]),
        ({"to": "end"}, []),
        ({"toEnd": True}, []),
        ({"position": "earliest"}, [1, 2, 3]),
        ({"position": "latest"}, []),
        ({"seq": 2}, [2, 3]),
    ],
)
async def test_a_seek_moves_the_group_and_says_what_is_before_it(
    api: Api, body: dict[str, Any], expected: list[int]
) -> None:
    await api.push_payloads("q", 1, 2, 3)
    await consume(api, "q", "g", 1)
    answer = (await api.post(f"{GROUPS}/g/queues/q/seek", body)).json
    assert (answer["success"], answer["lag"]) == (True, len(expected))
    assert await consume(api, "q", "g") == expected


async def test_a_seek_to_a_time_replays_what_is_not_older(api: Api) -> None:
    await api.push_payloads("q", 1)
    time = api.clock.advance(60)
    await api.push_payloads("q", 2)
    await consume(api, "q", "g")
    await api.post(f"{GROUPS}/g/queues/q/seek", {"timestamp": iso(time)})
    assert await consume(api, "q", "g") == [2]


async def test_a_seek_of_one_partition_leaves_the_others(api: Api) -> None:
    await api.push_payloads("q", "a", partition="a")
    await api.push_payloads("q", "b", partition="b/ c")
    for _ in range(2):
        await consume(api, "q", "g")
    path = f"{GROUPS}/g/queues/q/partitions/{quote('b/ c', safe='')}/seek"
    answer = (await api.post(path, {"to": "start"})).json
    assert (answer["partition"], answer["lag"]) == ("b/ c", 1)
    assert await consume(api, "q", "g") == ["b"]


@pytest.mark.parametrize(
    "body",
    [
        None,
        {},
        {"to": "middle"},
        {"to": "start", "seq": 1},
        {"toEnd": False},
        {"timestamp": "soon"},
        {"timestamp": "2026-01-01T00:00:60"},
        {"seq": 0},
        {"seek": "start"},
    ],
)
async def test_a_seek_that_names_no_place_or_two_moves_nothing(memory_api: Api, body: Any) -> None:
    await memory_api.push_payloads("q", 1, 2)
    await consume(memory_api, "q", "g", 1)
    answer = await memory_api.post(f"{GROUPS}/g/queues/q/seek", body)
    assert answer.status == 400
    assert await consume(memory_api, "q", "g") == [2]


async def test_a_seek_of_what_does_not_exist_is_not_found(api: Api) -> None:
    await api.push_payloads("q", 1)
    await consume(api, "q", "g")
    for path in ("g/queues/x", "g/queues/q/partitions/x"):
        answer = await api.post(f"{GROUPS}/{path}/seek", {"to": "start"})
        assert answer.status == 404, path


async def test_a_subscription_moves_a_group_in_all_its_queues(api: Api) -> None:
    for queue in "ab":
        await api.push_payloads(queue, "old")
    time = api.clock.advance(60)
    for queue in "ab":
        await api.push_payloads(queue, "new")
        await consume(api, queue, "g")
    answer = await api.post(f"{GROUPS}/g/subscription", {"subscriptionTimestamp": iso(time)})
    assert answer.json["queues"] == ["a", "b"]
    assert answer.json["subscriptionTimestamp"] == iso(time)
    for queue in "ab":
        assert await consume(api, queue, "g") == ["new"]


async def test_a_subscription_says_where_a_new_group_begins(api: Api) -> None:
    await api.push_payloads("q", "old")
    body = {"queue": "q", "start": "new"}
    assert (await api.post(f"{GROUPS}/g/subscription", body)).status == 200
    api.clock.advance(1)
    await api.push_payloads("q", "new")
    assert await consume(api, "q", "g") == ["new"]


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({}, 400),
        ({"subscriptionTimestamp": "2026-01-01T00:00:00Z"}, 404),
        ({"subscriptionTimestamp": "today", "queue": "q"}, 400),
        ({"subscriptionTimestamp": "2020-01-01T00:00:00Z", "start": "all", "queue": "q"}, 400),
        ({"start": "all", "queue": "q", "namespace": "n"}, 400),
        ({"start": "sometimes", "queue": "q"}, 400),
    ],
)
async def test_a_subscription_without_a_place_is_refused(
    memory_api: Api, body: Any, status: int
) -> None:
    answer = await memory_api.post(f"{GROUPS}/g/subscription", body)
    assert answer.status == status
