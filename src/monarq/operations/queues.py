"""Queues: making and changing them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import UNSET, Struct, structs

from monarq.ids import NumberText
from monarq.model import ConfiguredQueue, QueueKind, QueueOptions
from monarq.model.queue_options import QUEUE_OPTIONS
from monarq.operations.codec import OptionsArgument
from monarq.operations.operation import Body, Label, Name, Operation, Role, Route

# --- configuring -----------------------------------------------------------------------------

_MEANINGLESS = ("ttl", "maxQueueSize")
"""Options that Queen's clients send; named in `ignored`."""

if TYPE_CHECKING:

    class OptionsBody(Struct): ...

else:
    OptionsBody = msgspec.defstruct(
        "OptionsBody",
        [
            *((info.name, info.type | None, None) for info in structs.fields(QueueOptions)),
            *((name, Any, None) for name in _MEANINGLESS),
        ],
        rename={option.name: option.api_name for option in QUEUE_OPTIONS},
        forbid_unknown_fields=True,
        module=__name__,
    )


class OptionsAnswer(QueueOptions, frozen=True, kw_only=True, rename="camel"):
    """The queue's options, with what was sent of Queen's that mean nothing here."""

    ttl: Any = UNSET
    max_queue_size: Any = UNSET


class ConfigureAnswer(Struct, frozen=True, kw_only=True, rename="camel"):
    configured: bool
    queue: str
    kind: QueueKind
    namespace: str
    task: str
    options: OptionsAnswer
    queue_id: NumberText
    ignored: list[str]


class ConfigureBody(Body, frozen=True, kw_only=True, rename="camel"):
    queue: Name
    kind: QueueKind | None = None
    namespace: Label | None = None
    task: Label | None = None
    options: OptionsBody | None = None

    def fields(self) -> dict[str, Any]:
        given = self._given()
        own = {option.name: given[option.name] for option in QUEUE_OPTIONS if option.name in given}
        return {**structs.asdict(self), "options": own}

    def answer(
        self, request: Operation[Any], route: Route, result: ConfiguredQueue
    ) -> ConfigureAnswer:
        given = self._given()
        others = [
            option.api_name
            for option in QUEUE_OPTIONS
            if option.name in given and option.kind not in (None, result.kind)
        ]
        return ConfigureAnswer(
            configured=True,
            queue=result.name,
            kind=result.kind,
            namespace=result.namespace,
            task=result.task,
            options=OptionsAnswer(
                **structs.asdict(result.options),
                ttl=given.get("ttl", UNSET),
                max_queue_size=given.get("maxQueueSize", UNSET),
            ),
            queue_id=NumberText(result.id),
            ignored=[*(name for name in _MEANINGLESS if name in given), *others],
        )

    def _given(self) -> dict[str, Any]:
        fields = {} if self.options is None else structs.asdict(self.options)
        return {name: value for name, value in fields.items() if value is not None}


class Configure(Operation[ConfiguredQueue], frozen=True, kw_only=True):
    """Make a queue, or change what is named; what is not keeps its value.

    `options` go by their names in the API or in Python. Errors: `InvalidRequestError` (unknown
    option, out of range, rules of dead queues), `ConflictError` (a queue of the other kind),
    `EncryptionKeyError` (encryption without a key), `ForbiddenError` (a queue that runs commands,
    and the caller may not work on commands).
    """

    routes = (
        Route(
            "POST",
            "/api/v1/configure",
            "Make a queue, or change what is named; the rest keeps its value",
            role=Role.WRITE,
            body=ConfigureBody,
            answer=ConfigureAnswer,
            errors=(409,),
        ),
    )

    queue: Name
    kind: QueueKind | None = None
    namespace: Label | None = None
    task: Label | None = None
    options: OptionsArgument | None = None

    def needs_proof(self) -> str | None:
        runs_commands = self.options is not None and self.options.get("runs_commands")
        return "the option runsCommands" if runs_commands else None

    def wakes(self, result: ConfiguredQueue) -> Iterable[str | None]:
        return (self.queue,)

    def read(self, route: Route, answer: ConfigureAnswer) -> ConfiguredQueue:
        own = {name: getattr(answer.options, name) for name in QueueOptions.__struct_fields__}
        return ConfiguredQueue(
            id=int(answer.queue_id),
            name=answer.queue,
            kind=answer.kind,
            namespace=answer.namespace,
            task=answer.task,
            options=QueueOptions(**own),
        )
