"""Errors and results on their way to encrypted queues, which are sealed before they are sent.

Whether a queue is encrypted is asked anew by a store that has a key: an error must not be stored
in the clear because another broker switched encryption on a moment ago. A store without a key
goes by its catalog, so that it asks nothing in addition; it has no other way to push to or pop
from an encrypted queue either.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from msgspec import structs

from monarq.crypto import Cipher
from monarq.errors import EncryptionKeyError
from monarq.model import Ack
from monarq.store import sealing
from monarq.store.postgres.ack_parts import Part
from monarq.store.postgres.catalog import Catalog
from monarq.store.postgres.database import Database, Work

_ENCRYPTED = "select name from monarq.queues where name = any ($1) and encryption_enabled"


def says_something(request: Ack) -> bool:
    return request.error is not None or request.result is not None


async def encrypted_queues(
    unit: Database | Work, catalog: Catalog, cipher: Cipher | None, names: Collection[str]
) -> set[str]:
    """Those of the named queues that are encrypted."""
    if cipher is not None:
        return {row[0] for row in await unit.fetch(_ENCRYPTED, list(names))}
    queues = await catalog.queues(names, unit if isinstance(unit, Work) else None)
    return {name for name, queue in queues.items() if queue.options.encryption_enabled}


async def sealed_parts(
    unit: Database | Work, catalog: Catalog, cipher: Cipher | None, parts: Sequence[Part]
) -> tuple[list[Part], dict[int, EncryptionKeyError]]:
    """The parts with errors and results as they are stored, and the requests that are refused
    since there is no key for that."""
    names = {facts.queue for _, request, facts in parts if says_something(request)}
    if not names:
        return list(parts), {}
    encrypted = await encrypted_queues(unit, catalog, cipher, names)
    stored: list[Part] = []
    refused: dict[int, EncryptionKeyError] = {}
    for index, request, facts in parts:
        try:
            queue = facts.queue if facts.queue in encrypted else None
            stored.append((index, _stored(request, cipher, queue), facts))
        except EncryptionKeyError as error:
            refused[index] = error
    return [part for part in stored if part[0] not in refused], refused


def _stored(request: Ack, cipher: Cipher | None, queue: str | None) -> Ack:
    """`queue`: None if it is not encrypted."""
    if not says_something(request):
        return request
    error = sealing.stored_error(request.error, cipher, queue)
    if queue is None:
        return request if error == request.error else structs.replace(request, error=error)
    result = sealing.stored_result(request.result, cipher, queue)
    return structs.replace(request, error=error, result=result)
