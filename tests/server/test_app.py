"""The application: routing, and decoding of queries and bodies."""

import pytest
from msgspec import Struct

from monarq.operations.operation import Role
from monarq.server.exchange import Response
from monarq.server.routes import ROUTES
from tests.server.application import Api
from tests.server.routed import app_of, call, route, told


class Query(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    number: int | None = None
    names: list[str] = []
    is_on: bool = False
    text: str | None = None


class LooseQuery(Struct, frozen=True):
    number: int = 0


class Body(Struct):
    value: int


# --- routing ---


@pytest.mark.parametrize(
    ("method", "target", "status"),
    [
        ("GET", "/", 404),
        ("GET", "/api/v1/push/", 404),
        ("GET", "/API/v1/push", 404),
        ("GET", "/api/v1/pushed", 404),
        ("GET", "//api/v1/push", 404),
        ("GET", "/api/v1/push", 405),
        ("PUT", "/api/v1/push", 405),
        ("DELETE", "/api/v1/pop/queue/q", 405),
        ("HEAD", "/api/v1/push", 405),
        ("PROPFIND", "/api/v1/push", 405),
        ("GET", "no-slash", 400),
        ("GET", "", 400),
        ("GET", "ftp://host/api/v1/push", 400),
    ],
)
async def test_what_there_is_not_is_refused_as_json(
    memory_api: Api, method: str, target: str, status: int
) -> None:
    app = app_of(memory_api.service, *(r for r in ROUTES if "{" in r.path or r.method == "POST"))
    answer = await call(app, method, target)
    assert answer.status == status
    assert answer.error


async def test_a_wrong_method_is_told_the_right_ones(memory_api: Api) -> None:
    app = app_of(
        memory_api.service,
        route("GET", "/thing/{id}", told),
        route("DELETE", "/thing/{id}", told, role=Role.ADMIN),
    )
    answer = await call(app, "POST", "/thing/1")
    assert (answer.status, answer.code) == (405, "method_not_allowed")
    assert answer.headers["Allow"] == "DELETE, GET, HEAD, OPTIONS"
    options = await call(app, "OPTIONS", "/thing/1")
    assert (options.status, options.headers["Allow"]) == (204, answer.headers["Allow"])
    assert (await call(app, "OPTIONS", "*")).status == 204
    assert (await call(app, "OPTIONS", "/none")).status == 404


async def test_a_literal_segment_wins_over_a_parameter(memory_api: Api) -> None:
    app = app_of(
        memory_api.service,
        route("GET", "/groups/{group}", told),
        route("GET", "/groups/lagging", lambda service, request: Response(200, b"literal")),
        route("GET", "/groups/{group}/queues", told),
    )
    assert (await call(app, "GET", "/groups/lagging")).body == b"literal"
    assert b"lagging" in (await call(app, "GET", "/groups/lagging/queues")).body
    assert b"'a/b c'" in (await call(app, "GET", "/groups/a%2Fb%20c")).body
    assert b"'a+b'" in (await call(app, "GET", "/groups/a+b")).body


async def test_a_target_may_be_a_whole_url(memory_api: Api) -> None:
    app = app_of(memory_api.service, route("GET", "/thing", told, query=Query))
    answer = await call(app, "GET", "http://host:80/thing?number=5")
    assert (answer.status, b"number=5" in answer.body) == (200, True)


# --- decoding ---


async def test_queries_are_decoded_into_what_the_route_says(memory_api: Api) -> None:
    app = app_of(memory_api.service, route("GET", "/thing", told, query=Query))
    answer = await call(app, "GET", "/thing?number=5&names=a&names=b%26&isOn=True&text=null+%2B")
    query = Query(number=5, names=["a", "b&"], is_on=True, text="null +")
    assert answer.body == repr(({}, query, None)).encode()
    for again in range(3):
        answer = await call(app, "GET", f"/thing?number={again}")
        assert f"number={again}".encode() in answer.body


@pytest.mark.parametrize(
    "query", ["number=x", "number=1&number=2", "isOn=2", "other=1", "is_on=true", "number=%FF"]
)
async def test_a_bad_query_is_refused_again_and_again(memory_api: Api, query: str) -> None:
    app = app_of(memory_api.service, route("GET", "/thing", told, query=Query))
    for _ in range(3):
        assert (await call(app, "GET", f"/thing?{query}")).status == 400


async def test_unknown_parameters_are_passed_over_where_the_route_allows_it(
    memory_api: Api,
) -> None:
    app = app_of(
        memory_api.service,
        route("GET", "/loose", told, query=LooseQuery),
        route("GET", "/none", told),
    )
    assert b"number=5" in (await call(app, "GET", "/loose?x=1&number=5&x=2")).body
    for query in ("", "&", "&&"):
        assert (await call(app, "GET", f"/none?{query}")).status == 200
    answer = await call(app, "GET", "/none?x=1")
    assert (answer.status, "'x'" in answer.error) == (400, True)


async def test_many_different_targets_are_not_all_remembered(memory_api: Api) -> None:
    app = app_of(memory_api.service, route("GET", "/thing/{id}", told))
    for number in range(10_000):
        await call(app, "GET", f"/thing/{number}")
    assert len(app._targets) < 5_000
    assert b"'7'" in (await call(app, "GET", "/thing/7")).body


@pytest.mark.parametrize(
    ("kind", "status"),
    [
        (None, 200),
        ("application/json", 200),
        ("application/json; charset=utf-8", 200),
        ("Application/JSON", 200),
        ("application/vnd.api+json", 200),
        ("text/plain", 415),
        ("application/x-www-form-urlencoded", 415),
        ("application/x-queen-push", 415),
        ("multipart/form-data; boundary=json", 415),
        ("application/jsonp", 415),
        ("", 415),
    ],
)
async def test_a_body_must_be_called_json(memory_api: Api, kind: str | None, status: int) -> None:
    app = app_of(memory_api.service, route("POST", "/thing", told, body=Body))
    headers = {} if kind is None else {"content-type": kind}
    answer = await call(app, "POST", "/thing", b'{"value":1}', headers)
    assert answer.status == status


@pytest.mark.parametrize(
    ("encoding", "status"),
    [("identity", 200), ("Identity", 200), ("gzip", 415), ("zstd", 415), ("identity, gzip", 415)],
)
async def test_a_body_that_is_compressed_is_refused_as_such(
    memory_api: Api, encoding: str, status: int
) -> None:
    app = app_of(memory_api.service, route("POST", "/thing", told, body=Body))
    headers = {"content-type": "application/json", "content-encoding": encoding}
    answer = await call(app, "POST", "/thing", b'{"value":1}', headers)
    assert answer.status == status
    if status == 415:
        assert f"Content-Encoding: {encoding}" in answer.error


async def test_of_a_field_that_is_given_twice_the_last_one_counts(memory_api: Api) -> None:
    app = app_of(memory_api.service, route("POST", "/thing", told, body=Body))
    answer = await call(app, "POST", "/thing", b'{"value":1,"value":2}', {})
    assert (answer.status, b"value=2" in answer.body) == (200, True)


@pytest.mark.parametrize("headers", [{}, {"content-type": "text/plain"}])
async def test_an_empty_body_is_an_object_without_fields(
    memory_api: Api, headers: dict[str, str]
) -> None:
    app = app_of(memory_api.service, route("POST", "/thing", told, body=Body))
    answer = await call(app, "POST", "/thing", b"", headers)
    assert (answer.status, "value" in answer.error) == (400, True)


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b"nonsense",
        b'{"value":1}x',
        b'{"value":1e400}',
        b'{"value":true}',
        b'{"other":"\xff","value":1}',
        b'{"other":' + b"[" * 200_000 + b"]" * 200_000 + b',"value":1}',
        b"\x00",
        b"\xff\xfe",
        b"1" * 100_000,
    ],
    ids=lambda body: repr(body[:24]),
)
async def test_a_bad_body_is_refused_and_the_next_one_is_taken(
    memory_api: Api, body: bytes
) -> None:
    app = app_of(memory_api.service, route("POST", "/thing", told, body=Body))
    answer = await call(app, "POST", "/thing", body)
    assert answer.code == "invalid_request"
    assert answer.status == 400
    assert (await call(app, "POST", "/thing", b'{"value":1}')).status == 200
