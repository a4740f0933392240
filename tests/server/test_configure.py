"""Configuring queues over the API."""

from typing import Any

import pytest
from msgspec.structs import fields

from monarq.model import QueueOptions
from tests.server.application import Api

CONFIGURE = "/api/v1/configure"
OPTIONS = {info.encode_name for info in fields(QueueOptions)}


async def test_the_answer_has_all_options_as_they_are_now(api: Api) -> None:
    answer = await api.post(
        CONFIGURE,
        {"queue": "q", "namespace": "n", "task": "t", "options": {"leaseTime": 1.5}},
    )
    assert answer.status == 200
    told = answer.json
    assert told["configured"] is True
    assert [told[key] for key in ("queue", "kind", "namespace", "task")] == [
        "q",
        "ordered",
        "n",
        "t",
    ]
    assert set(told["options"]) == OPTIONS
    assert (told["options"]["leaseTime"], told["options"]["retryLimit"]) == (1.5, 3)


async def test_what_is_not_named_keeps_its_value(api: Api) -> None:
    body = {"queue": "q", "namespace": "n", "options": {"retryLimit": 7, "maxSize": 5}}
    first = (await api.post(CONFIGURE, body)).json
    for later in ({"queue": "q"}, {"queue": "q", "namespace": None, "task": None, "options": None}):
        assert (await api.post(CONFIGURE, later)).json == first
    changed = (await api.post(CONFIGURE, {"queue": "q", "options": {"maxSize": 6}})).json
    assert changed["options"] == {**first["options"], "maxSize": 6}
    assert changed["namespace"] == "n"


async def test_an_option_that_is_null_keeps_its_value(api: Api) -> None:
    await api.configure("q", retryLimit=7)
    assert (await api.configure("q", retryLimit=None))["options"]["retryLimit"] == 7


async def test_options_without_a_meaning_are_taken_and_named(api: Api) -> None:
    told = await api.configure("q", ttl=3600, leaseTime=5)
    assert told["ignored"] == ["ttl"]
    assert (await api.configure("q"))["ignored"] == []


async def test_options_of_the_other_kind_of_queue_are_taken_and_named(api: Api) -> None:
    options = {"retryLimit": 7, "maxAttempts": 2, "maxSize": 5}
    ordered = (await api.post(CONFIGURE, {"queue": "o", "options": options})).json
    work = (await api.post(CONFIGURE, {"queue": "w", "kind": "work", "options": options})).json
    assert (ordered["ignored"], work["ignored"]) == (["maxAttempts"], ["retryLimit"])


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"options": {"leaseTim": 5}}, "leaseTim"),
        ({"options": {"lease_time": 5}}, "lease_time"),
        ({"options": {"leaseTime": 0}}, "leaseTime"),
        ({"options": {"leaseTime": "5"}}, "leaseTime"),
        ({"options": {"retryLimit": -1}}, "retryLimit"),
        ({"options": {"retryLimit": 1.5}}, "retryLimit"),
        ({"options": {"maxSize": 10**30}}, "maxSize"),
        ({"options": {"encryptionEnabled": "yes"}}, "encryptionEnabled"),
        ({"options": {"deadQueue": "q"}}, "dead"),
        ({"options": {"deadQueue": "missing"}}, "missing"),
        ({"options": []}, "options"),
        ({"kind": "topic"}, "kind"),
        ({"queue": ""}, "queue"),
        ({"queue": None}, "queue"),
        ({"queue": "a\u0000"}, "queue"),
        ({"namespace": "x" * 256}, "namespace"),
        ({"nameSpace": "x"}, "nameSpace"),
    ],
)
async def test_what_is_malformed_is_refused_by_name_and_makes_no_queue(
    memory_api: Api, change: dict[str, Any], field: str
) -> None:
    answer = await memory_api.post(CONFIGURE, {"queue": "q", **change})
    assert (answer.status, answer.code) == (400, "invalid_request"), answer
    assert field in answer.error
    assert (await memory_api.broker.store.list_queues()).rows == []


async def test_a_queue_cannot_change_its_kind(api: Api) -> None:
    await api.configure("q", "work")
    answer = await api.post(CONFIGURE, {"queue": "q", "kind": "ordered"})
    assert (answer.status, answer.code) == (409, "conflict")
    assert (await api.post(CONFIGURE, {"queue": "q"})).json["kind"] == "work"


async def test_encryption_without_a_key_is_refused(api: Api) -> None:
    answer = await api.post(CONFIGURE, {"queue": "q", "options": {"encryptionEnabled": True}})
    assert (answer.status, answer.code) == (409, "encryption_key")


async def test_every_option_of_a_queue_can_be_set(api: Api) -> None:
    """Guards against an option that the model has and the API does not take."""
    told = await api.configure("q")
    options = {name: value for name, value in told["options"].items() if name != "deadQueue"}
    assert (await api.configure("q", **options))["options"] == told["options"]
