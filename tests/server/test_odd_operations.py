"""Odd texts and JSON values in every path, query and body of an operation get the same status on
all kinds of store, and never a 5xx."""

from collections.abc import Iterator, Mapping
from contextlib import AsyncExitStack
from typing import Any
from urllib.parse import quote, urlencode

import msgspec
import pytest

from monarq.model.queue_options import QUEUE_OPTIONS
from monarq.operations import OPERATIONS, Operation
from monarq.operations.http import has_body, in_path, input_type, json_fields
from monarq.operations.operation import Route
from monarq.operations.queues import Configure
from tests.kept_connections import KeptConnections
from tests.operations.samples import SOUND, sound_fields
from tests.server.application import api_on
from tests.shared_postgres import POSTGRES_NAMES

TEXTS = ["\0", "a\nb", "x" * 256, "é", "..", "a/b", "null", "YQ==", "1-2", "-1", "0", "1"]
TEXTS += [str(2**31), str(2**63), str(2**80), "1.5", "nan", "true", "2026-01-01", "<odd>"]
JSON = [
    *(b'""', rb'"\u0000"', rb'"\ud800"', b'"x"', b'"' + b"x" * 256 + b'"', b"-1", b"0", b"1"),
    *(b"2147483648", b"9223372036854775808", b"1208925819614629174706176", b"1.5", b"1e400"),
    *(b"null", b"true", b"[]", b'[""]', b"[0]", b"{}", b'{"odd":1}', b"{nope", b'"2026-01-01"'),
]
ROUTES = [
    pytest.param(operation, route, id=f"{route.method} {route.path}")
    for operation in OPERATIONS
    for route in operation.routes
]


@pytest.mark.parametrize(("operation", "route"), ROUTES)
async def test_every_store_answers_with_the_same_status(
    operation: type[Operation[Any]],
    route: Route,
    postgres_servers: Mapping[str, str],
    kept_connections: KeptConnections,
) -> None:
    async with AsyncExitStack() as stack:
        apis = [
            await stack.enter_async_context(api_on(name, postgres_servers, kept_connections))
            for name in ("memory", POSTGRES_NAMES[-1])
        ]
        for target, body in _requests(operation, route):
            answers = [await api.request(route.method, target, body) for api in apis]
            told = {(each.status, each.code if each.status >= 400 else "") for each in answers}
            assert len(told) == 1, (target, body, answers)
            assert answers[0].status < 500, (target, body, answers)


def _requests(operation: type[Operation[Any]], route: Route) -> Iterator[tuple[str, bytes | None]]:
    infos = {info.encode_name: info for info in msgspec.structs.fields(operation)}
    sound = sound_fields(operation)
    path = {name: str({**SOUND, **sound}.get(infos[name].name, "x")) for name in in_path(route)}
    kind = input_type(operation, route)
    taken = kind.__struct_encode_fields__ if kind else ()
    given = {
        info.encode_name: sound[info.name]
        for info in infos.values()
        if info.name in sound and info.encode_name in taken
    }
    fields = [name for name in infos if name not in path]
    if has_body(operation, route):
        raw = json_fields(operation)
        encoded = {
            name: value if name in raw else msgspec.json.encode(value)
            for name, value in given.items()
        }
        yield as_target(route.path, path), as_body(encoded)
        for name in fields:
            for value in JSON:
                yield as_target(route.path, path), as_body({**encoded, name: value})
        if operation is Configure:
            for option in QUEUE_OPTIONS:
                for value in JSON:
                    options = as_body({option.api_name: value})
                    yield as_target(route.path, path), as_body({**encoded, "options": options})
        for body in (b"[]", b"1", b"{nope", b'{"odd":1}', b"\xff"):
            yield as_target(route.path, path), body
    else:
        encoded = {}
        texts = {name: str(value) for name, value in given.items()}
        yield as_target(route.path, path, texts), None
        for name in fields:
            for text in TEXTS:
                yield as_target(route.path, path, {**texts, name: text}), None
    for name in path:
        for text in TEXTS:
            body = as_body(encoded) if has_body(operation, route) else None
            yield as_target(route.path, {**path, name: text}), body


def as_target(path: str, named: Mapping[str, str], query: Mapping[str, str] | None = None) -> str:
    target = path
    for name, text in named.items():
        target = target.replace(f"{{{name}}}", quote(text, safe=""))
    return f"{target}?{urlencode(query)}" if query else target


def as_body(fields: Mapping[str, bytes]) -> bytes:
    return b"{" + b",".join(b'"%s":%s' % (name.encode(), v) for name, v in fields.items()) + b"}"
