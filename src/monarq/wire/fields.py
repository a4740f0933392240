"""Types of fields that many requests share. What the store checks anyway is only documented
here (`extra_json_schema`), so that nothing is checked twice on the hot path."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from monarq.model import MAX_NAME_LENGTH

_NO_CONTROLS = {"pattern": r"^[^\u0000-\u001f\u007f-\u009f]*$"}

Name = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=MAX_NAME_LENGTH,
        extra_json_schema=_NO_CONTROLS,
        description="1 to 255 characters, no control characters",
    ),
]
Label = Annotated[
    str,
    Meta(
        max_length=MAX_NAME_LENGTH,
        extra_json_schema=_NO_CONTROLS,
        description="at most 255 characters, no control characters",
    ),
]
"""A name that may be left empty."""

Text = Annotated[str, Meta(max_length=65_536, extra_json_schema={"pattern": r"^[^\u0000]*$"})]

PartitionId = Annotated[str | int, Meta(description="as a push or a pop has told it")]
"""Text to the outside; taken as a number too."""
