"""Types of fields that many answers and filters share."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from monarq.model import MAX_NAME_LENGTH

TimeText = Annotated[
    str,
    Meta(
        description="ISO 8601, UTC, such as 2026-01-31T12:00:00.000000Z",
        extra_json_schema={"format": "date-time"},
    ),
]

TimeFilter = Annotated[
    str,
    Meta(
        max_length=64,
        description="ISO 8601, such as 2026-01-31T12:00:00Z or 2026-01-31; UTC if it names no zone",
        extra_json_schema={"format": "date-time"},
    ),
]

NameFilter = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=MAX_NAME_LENGTH,
        pattern=r"^[^\x00-\x1f\x7f-\x9f]*$",
        description="1 to 255 characters, no control characters",
    ),
]

LabelFilter = Annotated[
    str,
    Meta(
        max_length=MAX_NAME_LENGTH,
        pattern=r"^[^\x00-\x1f\x7f-\x9f]*$",
        description="at most 255 characters, no control characters",
    ),
]
"""A name that may be left empty."""

PartitionIdText = Annotated[
    str, Meta(pattern="^[1-9][0-9]{0,17}$", description="a number, as text")
]

DeadLetterId = Annotated[
    str, Meta(pattern="^[1-9][0-9]{0,17}$", description="a dead letter's `id`")
]
