"""Making a queue, or changing what is named of one."""

from __future__ import annotations

from msgspec import UNSET, structs

from monarq.model import KIND_OF_OPTION, QueueOptions
from monarq.operations.operation import Role
from monarq.server.answers import json_answer
from monarq.server.exchange import Request, Response
from monarq.server.routing import Route
from monarq.server.service import Service
from monarq.wire.configure import MEANINGLESS, ConfigureAnswer, ConfigureBody, OptionsAnswer

_NAMES = {info.name: info.encode_name for info in structs.fields(QueueOptions)}
"""Of the options, as they are called in the API."""


async def configure(service: Service, request: Request) -> Response:
    body: ConfigureBody = request.body
    fields = {} if body.options is None else structs.asdict(body.options)
    given = {name: value for name, value in fields.items() if value is not None}
    if given.get("runs_commands") and not request.principal.is_proven:
        # The store refuses it too, without naming the file of the token.
        request.principal.check_may_run_commands("the option runsCommands")
    queue = await service.broker.store.configure(
        body.queue,
        kind=body.kind,
        namespace=body.namespace,
        task=body.task,
        options={name: given[name] for name in _NAMES if name in given},
        commands=request.principal.may_run_commands,
    )
    return json_answer(
        ConfigureAnswer(
            configured=True,
            queue=queue.name,
            kind=queue.kind,
            namespace=queue.namespace,
            task=queue.task,
            options=OptionsAnswer(
                **structs.asdict(queue.options),
                ttl=given.get("ttl", UNSET),
                max_queue_size=given.get("maxQueueSize", UNSET),
            ),
            queue_id=str(queue.id),
            ignored=[
                *(name for name in MEANINGLESS if name in given),
                *(
                    _NAMES[name]
                    for name, kind in KIND_OF_OPTION.items()
                    if name in given and kind is not queue.kind
                ),
            ],
        )
    )


ROUTES = (
    Route(
        method="POST",
        path="/api/v1/configure",
        handler=configure,
        summary="Make a queue, or change what is named; the rest keeps its value",
        tag="queues",
        role=Role.WRITE,
        body=ConfigureBody,
        answer=ConfigureAnswer,
        errors=(409,),
    ),
)
