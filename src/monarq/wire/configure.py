"""Configuring a queue, in and out. The options are those of `QueueOptions`, each of which may be
left out, and those of Queen's that mean nothing here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import UNSET, Struct
from msgspec.structs import fields

from monarq.model import QueueKind, QueueOptions
from monarq.wire.fields import Label, Name

MEANINGLESS = ("ttl", "maxQueueSize")
"""Options that Queen's clients send; named in `ignored`."""

if TYPE_CHECKING:

    class OptionsBody(Struct): ...

else:
    OptionsBody = msgspec.defstruct(
        "OptionsBody",
        [
            *((info.name, info.type | None, None) for info in fields(QueueOptions)),
            *((name, Any, None) for name in MEANINGLESS),
        ],
        rename={info.name: info.encode_name for info in fields(QueueOptions)},
        forbid_unknown_fields=True,
        module=__name__,
    )


class ConfigureBody(Struct, rename="camel", forbid_unknown_fields=True):
    queue: Name
    kind: QueueKind | None = None
    namespace: Label | None = None
    task: Label | None = None
    options: OptionsBody | None = None


class OptionsAnswer(QueueOptions, frozen=True, kw_only=True, rename="camel"):
    """The queue's options, with what was sent of Queen's that mean nothing here."""

    ttl: Any = UNSET
    max_queue_size: Any = UNSET


class ConfigureAnswer(Struct, rename="camel"):
    configured: bool
    queue: str
    kind: QueueKind
    namespace: str
    task: str
    options: OptionsAnswer
    queue_id: str
    ignored: list[str]
