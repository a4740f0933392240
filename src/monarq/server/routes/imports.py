"""Import: what an export wrote, with the producers and attempts that only an admin may set."""

from __future__ import annotations

import msgspec

from monarq.errors import InvalidRequestError
from monarq.job import CommandJob
from monarq.model import Push, PushItem
from monarq.operations.operation import Role
from monarq.server.answers import json_answer
from monarq.server.decoding import body_decoder
from monarq.server.encoding import pushed_items
from monarq.server.exchange import Request, Response
from monarq.server.outlines import PushOutline
from monarq.server.routes.push import push_request
from monarq.server.routing import Route
from monarq.server.service import Service
from monarq.store.validation import check_name
from monarq.wire.push import ImportBody, PushedItem

_decode_command = msgspec.json.Decoder(CommandJob).decode


async def import_items(service: Service, request: Request) -> Response:
    body: ImportBody = request.body
    if body.producer is not None:
        check_name(body.producer, "producer")
    if not body.items:
        return json_answer([], 201)
    pushed = push_request(body.items, request)
    items = [
        _with_attempts(item, given.attempts)
        for item, given in zip(pushed.items, body.items, strict=True)
    ]
    if body.commands:
        request.principal.check_may_run_commands("an import of shell commands")
        for index, item in enumerate(items):
            _check_command(index, item)
    stored = await service.broker.restore(Push(items, body.producer, body.commands))
    return json_answer(pushed_items(stored), 201)


def _with_attempts(item: PushItem, attempts: int | None) -> PushItem:
    return item if attempts is None else msgspec.structs.replace(item, attempts=attempts)


def _check_command(index: int, item: PushItem) -> None:
    try:
        _decode_command(item.payload)
    except msgspec.DecodeError as error:
        raise InvalidRequestError(f"items[{index}].payload is no shell command: {error}") from None


ROUTES = (
    Route(
        method="POST",
        path="/api/v1/import",
        handler=import_items,
        operation="importItems",
        summary="Store what an export wrote, with its producer and attempts: all of it, or nothing",
        tag="messages",
        role=Role.ADMIN,
        body=ImportBody,
        decode=body_decoder(ImportBody, PushOutline),
        answer=list[PushedItem],
        status=201,
        errors=(409, 429),
    ),
)
