"""Looking at queues and changing them over HTTP, on both kinds of store."""

from urllib.parse import quote

import pytest

from tests.server.application import Api

QUEUES = "/api/v1/resources/queues"


async def names(api: Api, query: str = "") -> list[str]:
    """All of a list, page by page."""
    found: list[str] = []
    after = ""
    while True:
        answer = await api.get(f"{QUEUES}?{query}{after}")
        assert answer.status == 200, answer
        found += [queue["name"] for queue in answer.json["queues"]]
        if answer.json["next"] is None:
            return found
        after = f"&after={quote(answer.json['next'])}"


async def test_queues_are_listed_by_name_with_options_and_counters(api: Api) -> None:
    await api.push_payloads("b", 1, 2)
    await api.push_payloads("b", 3, partition="p")
    await api.configure("a", "work", maxAttempts=7)
    [a, b] = (await api.get(QUEUES)).json["queues"]
    assert (a["name"], a["kind"], a["options"]["maxAttempts"]) == ("a", "work", 7)
    assert (b["name"], b["kind"], b["partitions"]) == ("b", "ordered", 2)
    assert b["messages"]["total"] == b["messages"]["pending"] == b["messages"]["pushed"] == 3
    assert b["createdAt"].endswith("Z")
    assert (await api.get(f"{QUEUES}/b")).json == b


@pytest.mark.parametrize("limit", [1, 2, 3, 7, 1000])
async def test_pages_have_every_queue_once_whatever_the_limit(memory_api: Api, limit: int) -> None:
    for number in range(7):
        await memory_api.push_payloads(f"q{number}", 1)
    assert await names(memory_api, f"limit={limit}") == [f"q{number}" for number in range(7)]


async def test_a_queue_that_comes_or_goes_between_pages_repeats_and_hides_nothing(
    api: Api,
) -> None:
    for number in range(6):
        await api.push_payloads(f"q{number}", 1)
    first = (await api.get(f"{QUEUES}?limit=3")).json
    await api.request("DELETE", f"{QUEUES}/q1", None, {})
    await api.push_payloads("q00", 1)
    rest = (await api.get(f"{QUEUES}?limit=3&after={first['next']}")).json
    seen = [queue["name"] for queue in (*first["queues"], *rest["queues"])]
    assert seen == [f"q{number}" for number in range(6)]


async def test_an_offset_passes_over_rows_and_has_a_limit(api: Api) -> None:
    for number in range(5):
        await api.push_payloads(f"q{number}", 1)
    answer = (await api.get(f"{QUEUES}?offset=3&limit=1")).json
    assert [queue["name"] for queue in answer["queues"]] == ["q3"]
    assert (answer["offset"], answer["limit"]) == (3, 1)
    rest = (await api.get(f"{QUEUES}?after={quote(answer['next'])}")).json
    assert [queue["name"] for queue in rest["queues"]] == ["q4"]
    beyond = (await api.get(f"{QUEUES}?offset=9")).json
    assert (beyond["queues"], beyond["next"]) == ([], None)
    refused = await api.get(f"{QUEUES}?offset=10001")
    assert refused.status == 400
    assert "offset" in refused.error


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("limit=0", "limit"),
        ("limit=1001", "limit"),
        ("limit=many", "limit"),
        ("offset=-1", "offset"),
        ("after=nonsense", "nonsense"),
        ("namespace=", "namespace"),
        ("namespace=%01", "namespace"),
        ("limti=5", "limti"),
        ("limit=5&limit=6", "limit"),
    ],
)
async def test_what_is_malformed_is_refused_by_name(
    memory_api: Api, query: str, field: str
) -> None:
    answer = await memory_api.get(f"{QUEUES}?{query}")
    assert answer.status == 400
    assert field in answer.error


async def test_queues_are_found_by_label_and_by_part_of_their_name(api: Api) -> None:
    await api.push({"queue": "mail-out", "payload": 1, "namespace": "n", "task": "t"})
    await api.push({"queue": "MAIL-in", "payload": 1, "namespace": "n", "task": "u"})
    await api.push({"queue": "other", "payload": 1, "namespace": "m", "task": "t"})
    assert await names(api, "namespace=n") == ["MAIL-in", "mail-out"]
    assert await names(api, "task=t") == ["mail-out", "other"]
    assert await names(api, "namespace=n&task=t") == ["mail-out"]
    assert await names(api, "search=Mail&limit=1") == ["MAIL-in", "mail-out"]


async def test_a_search_that_finds_little_ends_a_page_and_goes_on(
    memory_api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("monarq.store.collecting.MAX_SCANNED", 10)
    for number in range(30):
        await memory_api.push_payloads(f"q{number:02}", 1)
    first = (await memory_api.get(f"{QUEUES}?search=29&limit=5")).json
    assert first["queues"] == []
    assert first["next"] is not None
    assert await names(memory_api, "search=29&limit=5") == ["q29"]


@pytest.mark.parametrize("name", ["a b", "50%", "a/b", "größe", "日本", "a?b#c", "null", "..."])
async def test_any_name_that_can_be_pushed_to_can_be_looked_at_and_deleted(
    memory_api: Api, name: str
) -> None:
    await memory_api.push_payloads(name, 1)
    path = f"{QUEUES}/{quote(name, safe='')}"
    assert (await memory_api.get(path)).json["name"] == name
    answer = await memory_api.get(f"/api/v1/messages?queue={quote(name)}")
    assert answer.json["messages"][0]["queue"] == name
    assert (await memory_api.request("DELETE", path, None, {})).json["deleted"] is True
    assert (await memory_api.get(path)).status == 404


async def test_deleting_tells_what_went_and_a_missing_queue_is_no_error(api: Api) -> None:
    await api.push_payloads("q", 1, 2, 3)
    answer = await api.request("DELETE", f"{QUEUES}/q", None, {})
    assert answer.json == {"deleted": True, "queue": "q", "messages": 3, "deadLetters": 0}
    again = await api.request("DELETE", f"{QUEUES}/q", None, {})
    assert again.status == 200
    assert again.json == {"deleted": False, "queue": "q", "messages": 0, "deadLetters": 0}


async def test_a_dead_queue_cannot_be_deleted_while_it_is_one(api: Api) -> None:
    await api.push_payloads("dead", 1)
    await api.configure("q", deadQueue="dead")
    answer = await api.request("DELETE", f"{QUEUES}/dead", None, {})
    assert (answer.status, answer.code) == (409, "conflict")
    assert (await api.get(f"{QUEUES}/dead")).status == 200


@pytest.mark.parametrize(
    ("method", "path"),
    [("POST", f"{QUEUES}/q/clear"), ("DELETE", "/api/v1/queues/q/clear")],
)
async def test_clearing_removes_what_is_stored_and_says_how_much(
    api: Api, method: str, path: str
) -> None:
    await api.push_payloads("q", 1, 2, 3)
    answer = await api.request(method, path, None, {})
    assert answer.json == {"queue": "q", "cleared": 3}
    assert await api.pop("q") is None
    await api.push_payloads("q", 4)
    assert await api.data("q") == [4]
    assert (await api.request(method, path.replace("q/", "x/"), None, {})).status == 404


async def test_clearing_only_scheduled_items_leaves_the_others(api: Api) -> None:
    await api.configure("w", kind="work")
    await api.push_payloads("w", 1)
    await api.push({"queue": "w", "payload": 2, "delaySeconds": 60})
    path = f"{QUEUES}/w/clear"
    answer = await api.post(path, {"scheduledOnly": True})
    assert answer.json == {"queue": "w", "cleared": 1}
    popped = await api.pop("w")
    assert [message["data"] for message in popped["messages"]] == [1]
    assert (await api.post(path, {"keepLeased": True})).json["cleared"] == 0
    assert (await api.post(path)).json["cleared"] == 1


@pytest.mark.parametrize(
    "body", [{"scheduled": True}, {"scheduledOnly": 1}, {"keepLeased": "yes"}, [], b"x"]
)
async def test_a_clear_that_is_misspelt_clears_nothing(api: Api, body: object) -> None:
    await api.configure("w", kind="work")
    await api.push_payloads("w", 1)
    answer = await api.post(f"{QUEUES}/w/clear", body)
    assert (answer.status, answer.code) == (400, "invalid_request")
    await api.push_payloads("q", 2)
    refused = await api.post(f"{QUEUES}/q/clear", {"scheduledOnly": True})
    assert (refused.status, refused.code) == (409, "conflict")
    assert await api.data("w") == [1]
    assert await api.data("q") == [2]


async def test_a_paused_queue_takes_pushes_and_gives_nothing_until_it_is_resumed(
    api: Api,
) -> None:
    await api.push_payloads("q", 1)
    assert (await api.post(f"{QUEUES}/q/pause")).json == {"queue": "q", "paused": True}
    assert (await api.get(f"{QUEUES}/q")).json["paused"] is True
    await api.push_payloads("q", 2)
    assert await api.pop("q") is None
    assert (await api.post(f"{QUEUES}/q/resume")).json == {"queue": "q", "paused": False}
    assert await api.data("q") == [1, 2]
    assert (await api.post(f"{QUEUES}/x/pause")).status == 404


async def test_partitions_are_listed_with_what_is_kept_and_pending(api: Api) -> None:
    await api.push_payloads("q", 1, 2, partition="a")
    await api.push_payloads("q", 3, partition="b")
    assert await api.data("q/partition/a", "batch=10&autoAck=true&consumerGroup=g") == [1, 2]
    rows = (await api.get("/api/v1/resources/partitions?queue=q")).json["partitions"]
    assert [(row["name"], row["firstSeq"], row["lastSeq"]) for row in rows] == [
        ("a", 1, 2),
        ("b", 1, 1),
    ]
    assert [row["pending"] for row in rows] == [0, 1]
    assert all(isinstance(row["id"], str) for row in rows)
    page = (await api.get("/api/v1/resources/partitions?queue=q&limit=1")).json
    assert page["next"] is not None
    assert (await api.get("/api/v1/resources/partitions?queue=x")).status == 404
    assert (await api.get("/api/v1/resources/partitions")).status == 400


async def test_depth_tells_what_a_group_or_the_slowest_one_has_before_it(api: Api) -> None:
    await api.push_payloads("q", 1, 2, partition="a")
    await api.push_payloads("q", 3, partition="b")
    await api.pop("q", "consumerGroup=slow")
    for _ in range(2):
        await api.data("q", "consumerGroup=fast&batch=10&autoAck=true")
    slowest = (await api.get(f"{QUEUES}/q/depth")).json
    assert (slowest["pending"], slowest["partitionsPending"], slowest["group"]) == (3, 2, None)
    fast = (await api.get(f"{QUEUES}/q/depth?group=fast")).json
    assert (fast["pending"], fast["effectivePending"], fast["conflation"]) == (0, 0, False)
    assert [row["pending"] for row in fast["partitions"]] == [0, 0]
    assert (await api.get(f"{QUEUES}/q/depth?group=nobody")).status == 404
    assert (await api.get(f"{QUEUES}/x/depth")).status == 404


async def test_the_overview_sums_up_all_queues_over_many_pages(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("monarq.server.queue_totals.MOST_ROWS", 2)
    for number in range(5):
        await api.push(
            {
                "queue": f"q{number}",
                "payload": 1,
                "namespace": f"n{number % 2}",
                "task": "t",
            }
        )
    await api.configure("w", "work")
    await api.push_payloads("w", 1, 2)
    overview = (await api.get("/api/v1/resources/overview")).json
    assert overview["queues"] == 6
    assert (overview["orderedQueues"], overview["workQueues"]) == (5, 1)
    assert (overview["namespaces"], overview["tasks"], overview["partitions"]) == (2, 1, 6)
    assert overview["messages"]["total"] == 7
    assert overview["messages"]["states"]["ready"] == 2
    listed = (await api.get("/api/v1/resources/namespaces")).json
    assert [(row["name"], row["queues"]) for row in listed["namespaces"]] == [("n0", 3), ("n1", 2)]
    assert listed["total"] == 2
    first = (await api.get("/api/v1/resources/namespaces?limit=1")).json
    second = (await api.get(f"/api/v1/resources/namespaces?limit=1&after={first['next']}")).json
    assert [row["name"] for row in second["namespaces"]] == ["n1"]
    assert second["next"] is None
    [task] = (await api.get("/api/v1/resources/tasks")).json["tasks"]
    assert (task["name"], task["queues"], task["messages"]) == ("t", 5, 5)
