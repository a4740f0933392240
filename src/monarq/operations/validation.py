"""Checks an operation's fields against its types, wherever the operation was made.

msgspec checks nothing when a struct is constructed, and `convert` returns an instance unchecked.
So the fields are put into a dict as they are and converted from that. `to_builtins` would not do:
it turns bytes, sets, dates and UUIDs into text and lists before anything is checked. Text is not
taken for bytes (`builtin_types`), where it would be read as base64.
"""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from monarq.errors import InvalidRequestError
from monarq.operations.codec import dec_hook
from monarq.operations.explaining import explain
from monarq.operations.operation import Operation

Op = TypeVar("Op", bound=Operation[Any])


def validated(request: Op) -> Op:
    """Return the operation with checked fields; raise `InvalidRequestError`, naming the field."""
    kind = type(request)
    fields = dict(zip(kind.__struct_encode_fields__, msgspec.structs.astuple(request), strict=True))
    for name, value in fields.items():
        _check_encodable(name, value)
    try:
        checked: Op = msgspec.convert(fields, kind, dec_hook=dec_hook, builtin_types=(bytes,))
    except msgspec.ValidationError as error:
        raise InvalidRequestError(explain(error, kind)) from None
    checked.check()
    return checked


def _check_encodable(name: str, value: object) -> None:
    # Also for fields that are not text: `convert` would raise what `str.encode` raises.
    if isinstance(value, list | tuple):
        for one in value:
            _check_encodable(name, one)
    elif isinstance(value, str) and not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise InvalidRequestError(f"{name} must be text that UTF-8 can encode") from None
