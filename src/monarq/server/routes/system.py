"""The maintenance switches. They are kept in the store, and hold for every broker on it."""

from __future__ import annotations

from monarq.errors import ConflictError
from monarq.operations.operation import Role
from monarq.server.answers import json_answer
from monarq.server.buffer_rows import buffer_answer
from monarq.server.exchange import Request, Response
from monarq.server.routing import Route
from monarq.server.service import Service
from monarq.wire.system import MaintenanceAnswer, PopMaintenanceAnswer, SwitchBody


def get_maintenance(service: Service, request: Request) -> Response:
    found = service.broker.health()
    buffer = buffer_answer(found.buffer)
    return json_answer(
        MaintenanceAnswer(
            maintenance_mode=found.maintenance_push,
            buffered_messages=buffer.records,
            buffer_healthy=buffer.healthy,
            buffer_stats=buffer,
        )
    )


async def set_maintenance(service: Service, request: Request) -> Response:
    body: SwitchBody = request.body
    if body.enabled and service.broker.health().buffer is None:
        raise ConflictError("this broker has no buffer files to keep pushes in: set buffer_enabled")
    await service.broker.set_maintenance(push=body.enabled, pop=None)
    return get_maintenance(service, request)


def get_pop_maintenance(service: Service, request: Request) -> Response:
    found = service.broker.health()
    return json_answer(PopMaintenanceAnswer(pop_maintenance_mode=found.maintenance_pop))


async def set_pop_maintenance(service: Service, request: Request) -> Response:
    body: SwitchBody = request.body
    await service.broker.set_maintenance(push=None, pop=body.enabled)
    return get_pop_maintenance(service, request)


_PUSH = "/api/v1/system/maintenance"
_POP = "/api/v1/system/maintenance/pop"

ROUTES = (
    Route(
        method="GET",
        path=_PUSH,
        handler=get_maintenance,
        summary="Whether pushes go to the buffer files",
        tag="system",
        answer=MaintenanceAnswer,
    ),
    Route(
        method="POST",
        path=_PUSH,
        handler=set_maintenance,
        summary="Let pushes go to the buffer files, or to the store again",
        tag="system",
        role=Role.ADMIN,
        body=SwitchBody,
        answer=MaintenanceAnswer,
        errors=(409,),
    ),
    Route(
        method="GET",
        path=_POP,
        handler=get_pop_maintenance,
        summary="Whether pops find nothing",
        tag="system",
        answer=PopMaintenanceAnswer,
    ),
    Route(
        method="POST",
        path=_POP,
        handler=set_pop_maintenance,
        summary="Let pops find nothing, or be served again",
        tag="system",
        role=Role.ADMIN,
        body=SwitchBody,
        answer=PopMaintenanceAnswer,
    ),
)
