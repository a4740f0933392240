"""The description of the API: valid, complete, and the same that the server serves."""

import html
import json
import keyword
import re
from typing import Any

import pytest
import schemathesis

from monarq.server.openapi import openapi
from monarq.server.routes import ROUTES
from monarq.server.routing import Router, parameter_names
from tests.openapi_document import TARGET, document
from tests.server.application import Api

DOCUMENT = openapi(ROUTES, version="1")


# Not in the quick tier, which runs on the oldest dependencies: an older msgspec writes the same
# alternatives in another order.
@pytest.mark.slow
def test_the_document_in_the_repository_is_fresh() -> None:
    assert TARGET.read_text() == document(), "run ./dev generate"


def operations() -> dict[str, dict[str, Any]]:
    return {
        f"{method.upper()} {path}": operation
        for path, methods in DOCUMENT["paths"].items()
        for method, operation in methods.items()
    }


def references(part: Any) -> set[str]:
    if isinstance(part, dict):
        own = {part["$ref"]} if isinstance(part.get("$ref"), str) else set()
        return own.union(*(references(value) for value in part.values()))
    if isinstance(part, list):
        return set().union(*(references(value) for value in part))
    return set()


def test_every_route_is_described_and_nothing_else() -> None:
    routes = {f"{route.method} {route.path}" for route in Router(ROUTES).routes}
    assert operations().keys() == routes
    assert len(routes) == len(ROUTES)


def test_the_document_is_valid_openapi() -> None:
    schema = schemathesis.openapi.from_dict(DOCUMENT)
    schema.validate()
    assert schema.statistic.operations.total == len(ROUTES)


def test_every_reference_leads_somewhere_and_every_type_is_used() -> None:
    schemas = {f"#/components/schemas/{name}" for name in DOCUMENT["components"]["schemas"]}
    assert references(DOCUMENT) == schemas


def test_path_parameters_are_those_of_the_path() -> None:
    for name, operation in operations().items():
        declared = [one["name"] for one in operation["parameters"] if one["in"] == "path"]
        assert declared == parameter_names(name.partition(" ")[2])


def test_operation_ids_are_unique_identifiers() -> None:
    """Also without regard to case, since generators make files and modules of them."""
    ids = [operation["operationId"] for operation in operations().values()]
    assert len({one.lower() for one in ids}) == len(ids)
    for one in ids:
        assert re.fullmatch("[a-z][a-zA-Z]{2,39}", one), one
        assert not keyword.iskeyword(one)


def test_the_hot_calls_have_the_names_that_people_expect() -> None:
    named = {one["operationId"]: name for name, one in operations().items()}
    assert named["push"] == "POST /api/v1/push"
    assert named["pop"] == "GET /api/v1/pop/queue/{queue}"
    assert named["popPartition"] == "GET /api/v1/pop/queue/{queue}/partition/{partition}"
    assert named["ack"] == "POST /api/v1/ack"
    assert named["extendLease"] == "POST /api/v1/lease/{leaseId}/extend"


def test_no_field_has_a_default_since_generators_take_it_for_required() -> None:
    for name, schema in DOCUMENT["components"]["schemas"].items():
        for field, described in schema.get("properties", {}).items():
            assert "default" not in described, (name, field)
    answer = DOCUMENT["components"]["schemas"]["PushBody"]["properties"]["answer"]
    assert 'default `"each"`' in answer["description"]


def test_patterns_end_as_those_of_json_schema_do() -> None:
    assert r"\\Z" not in json.dumps(DOCUMENT)


def test_a_body_is_optional_where_an_empty_one_does_something() -> None:
    optional = {
        one["operationId"]
        for one in operations().values()
        if one.get("requestBody", {}).get("required") is False
    }
    assert optional == {"clearQueue", "extendLease", "seekPartition"}


def test_a_call_is_described_without_the_parameters_that_it_ignores() -> None:
    def parameters(call: str) -> set[str]:
        return {one["name"] for one in operations()[call]["parameters"]}

    labels = {"namespace", "task"}
    assert not labels & parameters("GET /api/v1/pop/queue/{queue}")
    assert labels <= parameters("GET /api/v1/pop")


def test_credentials_are_optional() -> None:
    """With authentication off nobody is asked."""
    assert DOCUMENT["security"] == [{}, {"token": []}, {"apiKey": []}]
    assert DOCUMENT["servers"] == [{"url": "/"}]


def test_errors_have_the_shape_that_all_share() -> None:
    for name, operation in operations().items():
        for status, answer in operation["responses"].items():
            if int(status) >= 400 and name != "GET /health":
                [content] = answer["content"].values()
                assert "ErrorAnswer" in content["schema"]["$ref"], (name, status)


def test_lists_take_a_limit_and_say_where_they_go_on() -> None:
    """Of whatever answers with a page."""
    for route in ROUTES:
        fields = getattr(route.answer, "__struct_fields__", ())
        if "next" in fields and "limit" in fields:
            parameters = {one["name"] for one in operations()[f"GET {route.path}"]["parameters"]}
            assert {"limit", "offset", "after"} <= parameters, route.path


def test_only_what_anyone_may_see_needs_no_credentials() -> None:
    free = {name for name, one in operations().items() if one.get("security") == []}
    assert free == {
        "GET /",
        "GET /dashboard/{path}",
        "GET /docs",
        "GET /health",
        "GET /openapi.json",
        "GET /api/v1/session",
        "POST /api/v1/session",
        "DELETE /api/v1/session",
    }


async def test_the_server_serves_it(memory_api: Api) -> None:
    answer = await memory_api.get("/openapi.json")
    assert answer.json == openapi(ROUTES, version="test")


async def test_the_reference_names_every_operation_and_loads_nothing(memory_api: Api) -> None:
    answer = await memory_api.get("/docs")
    page = answer.body.decode()
    for route in ROUTES:
        assert f"<code>{html.escape(route.path)}</code>" in page
    assert not re.search(r"<(script|link|img|iframe)", page)
    assert not re.search(r"(src|href)=[\"'](https?:)?//", page)
    assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
    anchors = set(re.findall(r'href="#([^"]+)"', page))
    assert anchors <= set(re.findall(r'id="([^"]+)"', page))


async def test_the_reference_leads_to_the_dashboard_and_to_the_description(
    memory_api: Api,
) -> None:
    page = (await memory_api.get("/docs")).body.decode()
    assert 'href="/"' in page
    assert 'href="/openapi.json"' in page
