"""Changes of a queue's options."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from monarq.errors import InvalidRequestError
from monarq.model import QueueOptions
from monarq.store.validation.fields import check_name

_OPTION_NAMES = {
    name: info.name
    for info in msgspec.structs.fields(QueueOptions)
    for name in (info.name, info.encode_name)
}


def check_options(options: object) -> None:
    if not isinstance(options, Mapping):
        raise InvalidRequestError("options must map names of options to values")
    option_changes(options)


def option_changes(options: Mapping[Any, Any]) -> dict[str, Any]:
    """Checked changes of queue options, by their Python names."""
    changes: dict[str, Any] = {}
    for name, value in options.items():
        field = _OPTION_NAMES.get(name) if isinstance(name, str) else None
        if field is None:
            known = ", ".join(sorted({n for n in _OPTION_NAMES if "_" not in n}))
            raise InvalidRequestError(f"there is no option {name!r}; there are {known}")
        changes[field] = value
    by_camel_name = msgspec.to_builtins(QueueOptions())
    for info in msgspec.structs.fields(QueueOptions):
        if info.name in changes:
            by_camel_name[info.encode_name] = changes[info.name]
    try:
        checked = msgspec.convert(by_camel_name, QueueOptions)
    except (msgspec.ValidationError, UnicodeError) as error:
        raise InvalidRequestError(f"option out of range: {error}") from None
    if checked.dead_queue:
        check_name(checked.dead_queue, "deadQueue")
    return {field: getattr(checked, field) for field in changes}
