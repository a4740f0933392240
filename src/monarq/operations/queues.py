"""Queues: making and changing them, listing, pausing, clearing and deleting them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import UNSET, Struct, structs

from monarq.ids import LongNumberText
from monarq.model import ConfiguredQueue, QueueInfo, QueueKind, QueueOptions
from monarq.model.queue_options import QUEUE_OPTIONS
from monarq.operations.codec import OptionsArgument
from monarq.operations.operation import Body, Label, Name, Operation, Paged, Role, Route
from monarq.wire.paging import PageAnswer

_QUEUES = "/api/v1/resources/queues"
_QUEUE = f"{_QUEUES}/{{queue}}"


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
    queue_id: LongNumberText
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
            queue_id=LongNumberText(result.id),
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

    def changes(self, result: ConfiguredQueue) -> Mapping[str, ConfiguredQueue | None]:
        return {self.queue: result}

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


# --- looking -----------------------------------------------------------------------------------


class QueuesAnswer(PageAnswer, frozen=True, kw_only=True, rename="camel"):
    queues: list[QueueInfo]


class ListQueues(Paged[QueueInfo], frozen=True, kw_only=True):
    """List queues by name, with their options and counters."""

    routes = (
        Route(
            "GET",
            _QUEUES,
            "List queues by name, with their options and counters",
            answer=QueuesAnswer,
            result="queues",
        ),
    )

    namespace: Name | None = None
    task: Name | None = None
    search: Name | None = None
    """Part of the name, in any case."""

    def keep(self, row: QueueInfo) -> bool:
        return self.search is None or self.search.casefold() in row.name.casefold()


class GetQueue(Operation[QueueInfo], frozen=True, kw_only=True):
    """Return a queue with its options and counters; raise `NotFoundError` if there is none."""

    routes = (Route("GET", _QUEUE, "Describe a queue: options and counters", errors=(404,)),)

    queue: Name


# --- pausing ---------------------------------------------------------------------------------


class QueuePaused(Struct, frozen=True, kw_only=True, rename="camel"):
    queue: str
    paused: bool


class PauseQueue(Operation[QueuePaused], frozen=True, kw_only=True):
    """Let pops find nothing in a queue; it still takes pushes and acks."""

    routes = (
        Route(
            "POST",
            f"{_QUEUE}/pause",
            "Pause a queue: it takes pushes and acks, and pops find nothing",
            role=Role.ADMIN,
            errors=(404,),
        ),
    )

    queue: Name

    def wakes(self, result: QueuePaused) -> Iterable[str | None]:
        return (self.queue,)


class ResumeQueue(Operation[QueuePaused], frozen=True, kw_only=True):
    """Let pops find the messages of a paused queue again."""

    routes = (
        Route(
            "POST",
            f"{_QUEUE}/resume",
            "Let pops find messages again",
            role=Role.ADMIN,
            errors=(404,),
        ),
    )

    queue: Name

    def wakes(self, result: QueuePaused) -> Iterable[str | None]:
        return (self.queue,)


# --- removing --------------------------------------------------------------------------------


class QueueCleared(Struct, frozen=True, kw_only=True, rename="camel"):
    queue: str
    cleared: int


class ClearWhole(Body, frozen=True, kw_only=True, rename="camel"):
    """Queen's route takes no options."""

    def fields(self) -> dict[str, Any]:
        return {}


class ClearQueue(Operation[int], frozen=True, kw_only=True):
    """Remove what is stored in a queue; return how many messages or items that were.

    The queue and its dead letters stay, and its groups are at the end afterwards. The choices are
    for work queues alone.
    """

    routes = (
        Route(
            "POST",
            f"{_QUEUE}/clear",
            "Remove what is stored in a queue, not the queue nor its dead letters",
            role=Role.ADMIN,
            needs_body=False,
            answer=QueueCleared,
            result="cleared",
            errors=(404, 409),
        ),
        Route(
            "DELETE",
            "/api/v1/queues/{queue}/clear",
            "Remove all that is stored in a queue, as Queen's clients call it",
            role=Role.ADMIN,
            body=ClearWhole,
            answer=QueueCleared,
            result="cleared",
            errors=(404,),
            name="clearQueueLikeQueen",
        ),
    )

    queue: Name
    scheduled_only: bool = False
    """Remove only the scheduled items."""
    keep_leased: bool = False
    """Leave the items that are under a live lease."""

    def wakes(self, result: int) -> Iterable[str | None]:
        return (self.queue,)

    def answer(self, route: Route, result: int) -> QueueCleared:
        return QueueCleared(queue=self.queue, cleared=result)


class QueueDeleted(Struct, frozen=True, kw_only=True, rename="camel"):
    deleted: bool
    """False if there was no such queue."""
    queue: str
    messages: int
    """How many messages or items went with it."""
    dead_letters: int


class DeleteQueue(Operation[QueueDeleted], frozen=True, kw_only=True):
    """Delete a queue with all that belongs to it, its dead letters too.

    Commands that run end, as their leases do. `ConflictError` if it is another queue's dead queue.
    """

    # Answers 200 also for a queue that is not there: Queen's clients delete before they create.
    routes = (
        Route(
            "DELETE",
            _QUEUE,
            "Delete a queue with all that belongs to it",
            role=Role.ADMIN,
            errors=(409,),
        ),
    )

    queue: Name

    def changes(self, result: QueueDeleted) -> Mapping[str, ConfiguredQueue | None]:
        return {self.queue: None}
