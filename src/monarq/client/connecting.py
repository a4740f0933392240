"""Finds the way to a broker that an address names."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import urlsplit

from monarq.client.link import Link
from monarq.client.own_transaction import OwnTransactions
from monarq.clock import Clock
from monarq.errors import InvalidRequestError


def open_link(
    address: str | Sequence[str],
    *,
    token: str | None,
    keys: Sequence[bytes],
    schema: str,
    clock: Clock | None,
    timeout: float,
) -> Link:
    """A link that is not open yet."""
    addresses = [address] if isinstance(address, str) else address
    if not isinstance(addresses, list | tuple) or not addresses:
        raise InvalidRequestError("give the address of a broker or a store")
    if not all(isinstance(each, str) for each in addresses):
        raise InvalidRequestError("an address must be text")
    if not isinstance(schema, str):
        raise InvalidRequestError("schema must be text")
    _check_token(token)
    if all(each.startswith(("http://", "https://")) for each in addresses):
        _check_urls(addresses)
        # Imported here, and below, so that nobody pays for the way that is not taken.
        from monarq.client.http import HttpLink

        own = OwnTransactions(schema=schema, keys=keys, clock=clock)
        return HttpLink(addresses, token=token, timeout=timeout, own_transactions=own)
    if len(addresses) > 1:
        raise InvalidRequestError("several addresses must all be http:// or https:// URLs")
    if token is not None:
        raise InvalidRequestError("a token is for a broker behind HTTP; a store has no callers")
    from monarq.client.embedded import EmbeddedLink

    return EmbeddedLink(addresses[0], keys=keys, schema=schema, clock=clock)


def _check_token(token: object) -> None:
    if token is None or (isinstance(token, str) and token.isascii() and token.isprintable()):
        return
    raise InvalidRequestError("token must be text of printable ASCII characters")


def _check_urls(urls: Sequence[str]) -> None:
    for url in urls:
        try:
            parts = urlsplit(url)
            is_whole = bool(parts.hostname) and parts.port != 0
        except ValueError:
            is_whole = False
        if not is_whole:
            raise InvalidRequestError(f"{url!r} is not the URL of a broker")
