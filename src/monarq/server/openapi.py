"""The description of the API, OpenAPI 3.1, generated from the table of routes and the structs
that decode the requests: it cannot say anything else than what the server does."""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec import Struct

from monarq.ids import MessageIdText
from monarq.operations.codec import schema_hook
from monarq.server.field_notes import field_notes, structs_in
from monarq.server.routing import Route, parameter_names
from monarq.wire.errors import ErrorAnswer
from monarq.wire.fields import Name
from monarq.wire.queen import ignored_parameters
from monarq.wire.shown import PartitionIdText

_REF = "#/components/schemas/{name}"
_SECURITY = {
    "token": {"type": "http", "scheme": "bearer", "bearerFormat": "JWT"},
    "apiKey": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
}
_PATH_TYPES: dict[str, Any] = {"partitionId": PartitionIdText, "id": MessageIdText}
_REASONS = {
    400: "Malformed or out of range; the error names the field",
    401: "No credentials, or they are not valid",
    403: "The caller's role does not allow this",
    404: "There is no such thing",
    409: "It contradicts what is stored, or a lease does not allow it",
    413: "The body is too large",
    415: "The body is not JSON, or compressed",
    429: "The queue is full; see `Retry-After`",
    501: "This broker was installed without what it takes",
    503: "The store is down, or the broker is busy or shutting down; see `Retry-After`",
}
_RETRY_AFTER = {
    "Retry-After": {"description": "seconds", "schema": {"type": "integer", "minimum": 0}}
}
_ABOUT = (
    "JSON over HTTP/1.1. It speaks the Queen MQ 0.x protocol, so the clients that exist for it "
    "work; work queues, items, redrive and export are added in the same style."
)


def openapi(routes: Iterable[Route], *, version: str) -> dict[str, Any]:
    """The whole document, ready to be encoded."""
    routes = tuple(routes)
    schemas = _Schemas(routes)
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, schemas)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Monarq", "version": version, "description": _ABOUT},
        "servers": [{"url": "/"}],
        "security": [{}, *({name: []} for name in _SECURITY)],
        "tags": [{"name": tag} for tag in dict.fromkeys(route.tag for route in routes)],
        "paths": paths,
        "components": {"schemas": schemas.components, "securitySchemes": _SECURITY},
    }


class _Schemas:
    """The JSON schemas of all types that the routes name."""

    def __init__(self, routes: tuple[Route, ...]) -> None:
        types = [ErrorAnswer, Name, *_PATH_TYPES.values()]
        for route in routes:
            types += [part for part in (route.query, route.body, route.answer) if part is not None]
        schemas, self.components = msgspec.json.schema_components(
            types, ref_template=_REF, schema_hook=schema_hook
        )
        _write_patterns([schemas, self.components])
        self._by_type = {id(kind): schema for kind, schema in zip(types, schemas, strict=True)}
        self._kept = types
        """So that no other type gets the id of one of them."""
        _annotate(self.components, types)
        queries = {_name(route.query) for route in routes if route.query is not None}
        self._queries = {name: self.components[name] for name in queries}
        for name in queries:
            del self.components[name]
        for schema in self.components.values():
            _without_indent(schema)
            _without_defaults(schema)

    def of(self, kind: Any) -> dict[str, Any]:
        schema: dict[str, Any] = self._by_type[id(kind)]
        return schema

    def of_query(self, kind: type[Struct]) -> dict[str, Any]:
        schema: dict[str, Any] = self._queries[_name(kind)]
        return schema


def _annotate(components: dict[str, Any], types: list[Any]) -> None:
    """Say of each field what its struct's source says of it, where its type says nothing."""
    for name, kind in structs_in(types).items():
        properties = components[name]["properties"]
        for field, note in field_notes(kind).items():
            properties[field] = _noted(properties[field], note)


def _noted(schema: dict[str, Any], note: str) -> dict[str, Any]:
    return {**schema, "description": note}


def _write_patterns(part: Any) -> None:
    """Write the end of a text as `$` in all patterns: JSON Schema does not know `\\Z`."""
    if isinstance(part, dict):
        if isinstance(part.get("pattern"), str):
            part["pattern"] = part["pattern"].replace(r"\Z", "$")
        part = part.values()
    elif not isinstance(part, list | tuple):
        return
    for one in part:
        _write_patterns(one)


def _name(kind: type[Struct]) -> str:
    return kind.__name__


def _without_indent(schema: dict[str, Any]) -> None:
    if "description" in schema:
        schema["description"] = inspect.cleandoc(schema["description"])


def _without_defaults(schema: dict[str, Any]) -> None:
    """Tell the defaults of fields in words.

    Generators of clients take a field with a `default` for one that is always there.
    """
    for field, one in schema.get("properties", {}).items():
        if "default" in one:
            kept = {key: value for key, value in one.items() if key != "default"}
            if one["default"] is not None:
                told = one.get("description", "").rstrip(".")
                default = f"default `{json.dumps(one['default'])}`"
                kept["description"] = f"{told}; {default}" if told else default
            schema["properties"][field] = kept


def _operation(route: Route, schemas: _Schemas) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": route.operation_id,
        "summary": route.summary,
        "tags": [route.tag],
        "parameters": [*_path_parameters(route, schemas), *_query_parameters(route, schemas)],
        "responses": _responses(route, schemas),
    }
    if route.role is None:
        operation["security"] = []
    else:
        operation["description"] = f"Needs the role `{route.role}`, where callers need one."
    if route.body is not None:
        operation["requestBody"] = {
            "required": route.needs_body,
            "content": {"application/json": {"schema": schemas.of(route.body)}},
        }
    return operation


def _path_parameters(route: Route, schemas: _Schemas) -> list[dict[str, Any]]:
    return [
        {
            "name": name,
            "in": "path",
            "required": True,
            "schema": schemas.of(_PATH_TYPES.get(name, Name)),
        }
        for name in parameter_names(route.path)
    ]


def _query_parameters(route: Route, schemas: _Schemas) -> list[dict[str, Any]]:
    if route.query is None:
        return []
    described = schemas.of_query(route.query)
    required = set(described.get("required", ()))
    ignored = ignored_parameters(route.method, route.path)
    return [
        {
            "name": name,
            "in": "query",
            "required": name in required,
            "schema": _in_query(schema),
        }
        for name, schema in described["properties"].items()
        if name not in ignored
    ]


def _in_query(schema: dict[str, Any]) -> dict[str, Any]:
    """Of a parameter: it is there or it is not, but never null."""
    kept = {key: value for key, value in schema.items() if (key, value) != ("default", None)}
    if "anyOf" in kept:
        choices = [choice for choice in kept.pop("anyOf") if choice != {"type": "null"}]
        kept = {**choices[0], **kept} if len(choices) == 1 else {"anyOf": choices, **kept}
    return kept


def _responses(route: Route, schemas: _Schemas) -> dict[str, Any]:
    responses: dict[str, Any] = {str(route.status): _good(route, schemas)}
    if route.empty:
        responses["204"] = {"description": "Nothing is there"}
    statuses = {400, *route.errors}
    if route.role is not None:
        statuses |= {401, 403, 503}
    if route.body is not None:
        statuses |= {413, 415}
    for status in sorted(statuses):
        responses[str(status)] = _bad(status, schemas.of(ErrorAnswer))
    if route.path == "/health":
        responses["503"] = {**_good(route, schemas), "description": "It cannot serve"}
    return responses


def _good(route: Route, schemas: _Schemas) -> dict[str, Any]:
    if route.answer is not None:
        schema = schemas.of(route.answer)
    elif route.content_type == "application/json":
        schema = {"type": "object"}
    else:
        schema = {"type": "string"}
    content_type = route.content_type.partition(";")[0]
    return {"description": route.summary, "content": {content_type: {"schema": schema}}}


def _bad(status: int, schema: dict[str, Any]) -> dict[str, Any]:
    answer: dict[str, Any] = {
        "description": _REASONS[status],
        "content": {"application/json": {"schema": schema}},
    }
    if status in (429, 503):
        answer["headers"] = _RETRY_AFTER
    return answer
