"""The calls beside the hot path, over HTTP."""

from __future__ import annotations

from typing import TypeVar

from monarq.client.http_items import item_body
from monarq.client.http_operations import Call, send
from monarq.client.http_reading import pushed_of
from monarq.model import Push, Pushed
from monarq.operations.calls import Calls
from monarq.operations.operation import Operation
from monarq.store.validation import check_push
from monarq.wire.push import PushedItem

R = TypeVar("R")


class HttpAdmin(Calls):
    def __init__(self, call: Call) -> None:
        self._call = call

    async def call(self, request: Operation[R]) -> R:
        return await send(self._call, request)

    async def restore(self, push: Push) -> list[Pushed]:
        check_push(push)
        body = {
            "items": [item_body(item) for item in push.items],
            "producer": push.producer,
            "commands": push.commands,
        }
        answer = await self._call("POST", "/api/v1/import", list[PushedItem], body=body)
        return [pushed_of(each) for each in answer]
