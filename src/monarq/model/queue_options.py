"""The options of a queue, each declared once: as a field of `QueueOptions`.

The field's type, bounds and default are those of the option. `_option` adds what people read:
label, description, unit, section of the form, and the kind of queue that the option is for.
Validation, the API with its OpenAPI document, the flags and help of `monarq queue`, the dashboard's
form, and the table in `docs/api.md` are derived from these fields. `./dev generate` writes the last
two.

A new option is a field here, a column of the same name in the stores' table of queues, and the code
that has its effect.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any, Self, get_args, get_type_hints

import msgspec
from msgspec import Meta, Struct

from monarq.errors import InvalidRequestError
from monarq.model.limits import MAX_NAME_LENGTH, MAX_PRIORITY

_MOST_SECONDS = 10 * 365 * 86_400
_UNITS = {"s": "seconds", "ms": "milliseconds", "messages": "messages"}
_KINDS = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}
_PLACE = re.compile(r"`\$\.(\w+)`")
_CONTROLS = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")


class QueueKind(StrEnum):
    ORDERED = "ordered"
    WORK = "work"


class Section(StrEnum):
    """Sections of the form that edits options."""

    DELIVERY = "Delivery"
    RETENTION = "Size and retention"
    DEAD = "Dead and secret"


def _option(
    label: str,
    section: Section,
    description: str,
    *,
    kind: QueueKind | None = None,
    unit: str = "",
    fixed: bool = False,
    **bounds: Any,
) -> Meta:
    """Describe an option.

    `kind` is None if it is for queues of both kinds. A `fixed` option is chosen when the queue is
    made.
    """
    notes = {
        "label": label,
        "section": section,
        "description": description,
        "kind": kind,
        "unit": unit,
        "fixed": fixed,
    }
    shown = f"{description} ({_UNITS[unit]})" if unit else description
    return Meta(description=shown, extra=notes, **bounds)


def _seconds(label: str, section: Section, description: str, kind: QueueKind | None = None) -> Meta:
    return _option(label, section, description, kind=kind, unit="s", ge=0, le=_MOST_SECONDS)


_DELIVERY, _RETENTION, _DEAD = Section
_ORDERED, _WORK = QueueKind


class QueueOptions(Struct, frozen=True, rename="camel", forbid_unknown_fields=True, kw_only=True):
    """All options of a queue with their defaults."""

    lease_time: Annotated[
        float,
        _option(
            "Lease time",
            _DELIVERY,
            "time after which a consumer's lease ends, unless its pop asked for another time",
            unit="s",
            gt=0,
            le=7 * 86_400,
        ),
    ] = 300.0
    retention_enabled: Annotated[
        bool, _option("Retention", _RETENTION, "remove old messages and finished items")
    ] = True
    retention_seconds: Annotated[
        float,
        _seconds(
            "Keep for",
            _RETENTION,
            "age at which a message is removed, consumed or not; 0 is never",
        ),
    ] = 30 * 86_400.0
    completed_retention_seconds: Annotated[
        float,
        _seconds(
            "Keep consumed for",
            _RETENTION,
            "time after which consumed messages and finished items are removed; 0 is never",
        ),
    ] = 86_400.0
    max_size: Annotated[
        int,
        _option(
            "Most pending",
            _RETENTION,
            "number of pending messages beyond which a push is refused; 0 is no limit",
            unit="messages",
            ge=0,
            le=2**53,
        ),
    ] = 0
    encryption_enabled: Annotated[
        bool,
        _option(
            "Encryption at rest",
            _DEAD,
            "encrypt payloads in the store with AES-256-GCM; needs a key in the settings",
        ),
    ] = False
    priority: Annotated[
        int,
        _option(
            "Priority of the queue",
            _DELIVERY,
            "order of the queues in a pop by namespace or task, highest first",
            ge=-MAX_PRIORITY,
            le=MAX_PRIORITY,
        ),
    ] = 0
    dead_queue: Annotated[
        str,
        _option(
            "Dead queue",
            _DEAD,
            "queue that dead messages and items are moved to, instead of the dead letters",
            max_length=MAX_NAME_LENGTH,
        ),
    ] = ""
    retry_limit: Annotated[
        int,
        _option(
            "Retry limit",
            _DELIVERY,
            "deliveries of a failed message after the first, before it is dead",
            kind=_ORDERED,
            ge=0,
            le=1_000_000,
        ),
    ] = 3
    retry_delay: Annotated[
        int,
        _option(
            "Retry delay",
            _DELIVERY,
            "wait before a failed message is delivered again",
            kind=_ORDERED,
            unit="ms",
            ge=0,
            le=7 * 86_400_000,
        ),
    ] = 1_000
    delayed_processing: Annotated[
        float,
        _seconds(
            "Delayed processing",
            _DELIVERY,
            "age at which a message is delivered; 0 is at once",
            _ORDERED,
        ),
    ] = 0.0
    window_buffer: Annotated[
        float,
        _seconds(
            "Window buffer",
            _DELIVERY,
            "time without a push after which a partition is delivered; 0 is at once",
            _ORDERED,
        ),
    ] = 0.0
    max_wait_time_seconds: Annotated[
        float,
        _seconds(
            "Longest wait",
            _DELIVERY,
            "age at which a message that still waits is dead; 0 is never",
            _ORDERED,
        ),
    ] = 0.0
    dead_letter_queue: Annotated[
        bool,
        _option(
            "Keep dead letters",
            _DEAD,
            "keep dead messages and items as dead letters; they are dropped otherwise",
        ),
    ] = True
    dlq_after_max_retries: Annotated[
        bool,
        _option(
            "Dead after the last retry",
            _DEAD,
            "make a message dead after its last retry; "
            "otherwise it is retried for ever, and blocks its partition",
            kind=_ORDERED,
        ),
    ] = True
    retain_until_archived: Annotated[
        bool,
        _option(
            "Keep until archived",
            _RETENTION,
            "keep each message until it is archived, whatever its age",
            kind=_ORDERED,
        ),
    ] = False
    max_attempts: Annotated[
        int,
        _option(
            "Attempts",
            _DELIVERY,
            "attempts in all, before an item is dead",
            kind=_WORK,
            ge=1,
            le=1_000_000,
        ),
    ] = 3
    backoff_base: Annotated[
        float,
        _option(
            "Backoff base",
            _DELIVERY,
            "base of an item's backoff, which is base ^ attempts seconds",
            kind=_WORK,
            ge=0,
            le=1_000,
        ),
    ] = 2.0
    backoff_cap: Annotated[
        float,
        _option(
            "Longest backoff",
            _DELIVERY,
            "longest backoff of a failed item",
            kind=_WORK,
            unit="s",
            gt=0,
            le=_MOST_SECONDS,
        ),
    ] = 3_600.0
    backoff_jitter: Annotated[
        float,
        _option(
            "Backoff jitter",
            _DELIVERY,
            "largest part of a backoff that is added to it at random, 0 to 1",
            kind=_WORK,
            ge=0,
            le=1,
        ),
    ] = 0.0
    expire_timeout: Annotated[
        float,
        _seconds(
            "Expires after",
            _DELIVERY,
            "age at which an item that no worker has begun is dead; 0 is never",
            _WORK,
        ),
    ] = 0.0
    default_priority: Annotated[
        int,
        _option(
            "Default priority",
            _DELIVERY,
            "priority of an item that is pushed without one",
            kind=_WORK,
            ge=-MAX_PRIORITY,
            le=MAX_PRIORITY,
        ),
    ] = 5
    runs_commands: Annotated[
        bool,
        _option(
            "Runs commands",
            _DELIVERY,
            "items are shell commands for workers to run; chosen when the queue is made",
            kind=_WORK,
            fixed=True,
        ),
    ] = False


class QueueOption(Struct, frozen=True, kw_only=True):
    """The declaration of one option, to read it field by field."""

    name: str
    """As in Python, and as a column."""
    api_name: str
    type: type
    """`int`, `float`, `bool` or `str`."""
    default: Any
    least: float | None
    """Smallest value of the form: where the bound itself is too small, a little more."""
    most: float | None
    label: str
    section: Section
    description: str
    kind: QueueKind | None
    """The kind of queue that it is for; None for both."""
    unit: str
    """`s`, `ms`, `messages`, or nothing."""
    fixed: bool
    """Whether it is chosen when the queue is made, and stays."""
    values: str
    """What a value must be, such as `a number of seconds, at least 0 and at most 604800`."""


def _declared(info: msgspec.structs.FieldInfo, hint: Any) -> QueueOption:
    kind, meta = get_args(hint)
    values = _KINDS[kind]
    if unit := _UNITS.get(meta.extra["unit"]):
        values += f" of {unit}"
    bounds = [
        f"{words} {bound:g}" if abs(bound) < 10**6 else f"{words} {bound:,.0f}"
        for words, bound in (
            ("more than", meta.gt),
            ("at least", meta.ge),
            ("at most", meta.le),
        )
        if bound is not None
    ]
    if meta.max_length is not None:
        bounds.append(f"at most {meta.max_length} characters")
    return QueueOption(
        name=info.name,
        api_name=info.encode_name,
        type=kind,
        default=info.default,
        least=meta.ge if meta.gt is None else meta.gt + 0.001,
        most=meta.le,
        values=", ".join((values, " and ".join(bounds))) if bounds else values,
        **meta.extra,
    )


_HINTS = get_type_hints(QueueOptions, include_extras=True)
QUEUE_OPTIONS = tuple(
    _declared(info, _HINTS[info.name]) for info in msgspec.structs.fields(QueueOptions)
)
OPTION_BY_NAME: Mapping[object, QueueOption] = {
    name: option for option in QUEUE_OPTIONS for name in (option.name, option.api_name)
}
"""Options by their names in Python and in the API."""


class OptionChanges(dict[str, Any]):
    """New values of options, checked, by their Python names."""

    @classmethod
    def read(cls, given: object) -> Self:
        """Check changes that go by the names of the API or of Python.

        Raises `InvalidRequestError`, naming the option.
        """
        if not isinstance(given, Mapping):
            raise InvalidRequestError("options must map names of options to values")
        changes = {_known(name).name: value for name, value in given.items()}
        by_api_name = msgspec.to_builtins(QueueOptions())
        for option in QUEUE_OPTIONS:
            if option.name in changes:
                by_api_name[option.api_name] = changes[option.name]
        try:
            checked = msgspec.convert(by_api_name, QueueOptions)
        except UnicodeError:
            raise InvalidRequestError("options must be text that UTF-8 can encode") from None
        except msgspec.ValidationError as error:
            raise InvalidRequestError(_refusal(str(error))) from None
        if _CONTROLS.search(checked.dead_queue):
            raise InvalidRequestError("deadQueue must not contain control characters")
        return cls({name: getattr(checked, name) for name in changes})

    def by_api_name(self) -> dict[str, Any]:
        return {OPTION_BY_NAME[name].api_name: value for name, value in self.items()}


def _refusal(error: str) -> str:
    """Return what an option must be, for an error of the decoder."""
    place = _PLACE.search(error)
    option = OPTION_BY_NAME[place[1]] if place else None
    return f"{option.api_name} must be {option.values}" if option else f"options: {error}"


def _known(name: object) -> QueueOption:
    option = OPTION_BY_NAME.get(name) if isinstance(name, str) else None
    if option is None:
        known = ", ".join(sorted(each.api_name for each in QUEUE_OPTIONS))
        raise InvalidRequestError(f"there is no option {name!r}; there are {known}")
    return option
