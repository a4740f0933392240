"""What a page watches, in."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from monarq.ids import MessageIdText
from monarq.wire.shown import NameFilter

TOPICS = ("overview", "queues", "groups", "queue", "workers", "pipeline", "item")
_NAME = "|".join(TOPICS)


class EventsQuery(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    topics: Annotated[
        str,
        Meta(
            max_length=200,
            pattern=rf"^({_NAME})(,({_NAME}))*$",
            description=f"one or more of {', '.join(TOPICS)}, with commas between them",
        ),
    ] = "overview"
    queue: NameFilter | None = None
    """For the topic `queue`."""
    item: MessageIdText | None = None
    """For the topic `item`: the job whose output is wanted."""
