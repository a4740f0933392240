"""What no single setting says alone: contradictions, and files that are not there."""

from __future__ import annotations

import ipaddress
import ssl
from collections.abc import Iterator
from pathlib import Path

from monarq.config import Settings
from monarq.crypto import parse_key
from monarq.errors import InvalidRequestError
from monarq.places import is_postgres

ALGORITHMS = ("HS256", "RS256", "EdDSA")
SHORTEST_SECRET = 32
SQLITE_SCHEMES = ("memory:", "sqlite:///")


def contradictions(settings: Settings) -> Iterator[tuple[str, str]]:
    """The name of a setting and what is wrong with it."""
    yield from _store(settings)
    yield from _listening(settings)
    yield from _notices(settings)
    yield from _intervals(settings)
    yield from _authentication(settings)
    for number, key in enumerate(settings.encryption_keys, 1):
        try:
            parse_key(key)
        except InvalidRequestError as error:
            yield "encryption_keys", f"key {number}: {error}"
    for peer in settings.peers:
        if not is_host_and_port(peer):
            yield "peers", f"{peer!r} is not host:port"


def is_loopback(host: str) -> bool:
    """Whether nobody beyond this machine can connect to what listens there."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def is_host_and_port(text: str) -> bool:
    host, colon, port = text.rpartition(":")
    return bool(host and colon and port.isdecimal() and 0 < int(port) <= 65_535)


def _store(settings: Settings) -> Iterator[tuple[str, str]]:
    address = settings.store
    if address and not is_postgres(address) and not address.startswith(SQLITE_SCHEMES):
        yield "store", "must be memory:, sqlite:///file or postgresql://…"
    if settings.workers > 1 and not is_postgres(address):
        yield "workers", "several processes need a store on PostgreSQL; SQLite is served from one"
    if not settings.schema.isidentifier() or len(settings.schema) > 63:
        yield "schema", f"{settings.schema!r} is no name for a schema"


def _listening(settings: Settings) -> Iterator[tuple[str, str]]:
    if bool(settings.tls_certificate) != bool(settings.tls_key):
        missing = "tls_key" if settings.tls_certificate else "tls_certificate"
        yield missing, "a certificate and its key go together: set both or none"
    for name in ("tls_certificate", "tls_key", "jwt_public_key"):
        yield from _readable(name, getattr(settings, name))
    if settings.tls_certificate and settings.tls_key:
        try:
            ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(
                settings.tls_certificate, settings.tls_key
            )
        except FileNotFoundError:
            pass  # named above
        except (ssl.SSLError, OSError) as error:
            yield "tls_certificate", f"cannot be used with its key: {error}"
    if not settings.auth and not settings.insecure and not is_loopback(settings.host):
        problem = (
            f"{settings.host} can be reached from other machines, and nobody is authenticated: "
            "set auth (with a JWT key or API keys), or insecure if that is what you want"
        )
        yield "host", problem


def _notices(settings: Settings) -> Iterator[tuple[str, str]]:
    listens = bool(settings.peers or settings.peer_port)
    if listens and not settings.peer_key and not is_loopback(settings.peer_host):
        problem = (
            f"notices on {settings.peer_host} can be sent from other machines, and without a key "
            "any of them counts: set the same peer_key for all brokers, or a peer_host on loopback"
        )
        yield "peer_key", problem


def _intervals(settings: Settings) -> Iterator[tuple[str, str]]:
    if settings.poll_min_ms > settings.poll_max_ms:
        yield "poll_min_ms", f"is more than poll_max_ms ({settings.poll_max_ms:g})"
    if settings.poll_min_ms < 1 or settings.sqlite_poll_ms < 1:
        name = "poll_min_ms" if settings.poll_min_ms < 1 else "sqlite_poll_ms"
        yield name, "must be at least 1"
    if settings.buffer_file_bytes > settings.buffer_max_bytes:
        yield "buffer_file_bytes", f"is more than buffer_max_bytes ({settings.buffer_max_bytes})"


def _authentication(settings: Settings) -> Iterator[tuple[str, str]]:
    keys = (settings.jwt_secret, settings.jwt_public_key, settings.jwt_jwks)
    if settings.auth and not any((*keys, settings.api_keys)):
        yield (
            "auth",
            "nobody could call: set jwt_secret, jwt_public_key, jwt_jwks or api_keys too",
        )
    if settings.jwt_secret and len(settings.jwt_secret.encode()) < SHORTEST_SECRET:
        yield "jwt_secret", f"must be at least {SHORTEST_SECRET} bytes long"
    if settings.session_key and len(settings.session_key.encode()) < SHORTEST_SECRET:
        yield "session_key", f"must be at least {SHORTEST_SECRET} bytes long"
    for algorithm in settings.jwt_algorithms:
        if algorithm not in ALGORITHMS:
            yield "jwt_algorithms", f"{algorithm!r} is not one of {', '.join(ALGORITHMS)}"
    if settings.jwt_algorithms and not any(keys):
        yield "jwt_algorithms", "there is no key to check tokens with: set jwt_secret or another"
    if "HS256" in settings.jwt_algorithms and not settings.jwt_secret:
        yield "jwt_algorithms", "HS256 needs jwt_secret"
    if settings.jwt_jwks.startswith("http://") and not is_loopback(_host(settings.jwt_jwks)):
        yield "jwt_jwks", "keys must come over https, or whoever is on the way makes them"
    if settings.jwt_jwks and not settings.jwt_jwks.startswith(("http://", "https://")):
        yield from _readable("jwt_jwks", settings.jwt_jwks)


def _host(url: str) -> str:
    return url.split("/")[2].rpartition(":")[0] or url.split("/")[2]


def _readable(name: str, path: str) -> Iterator[tuple[str, str]]:
    if not path:
        return
    try:
        with Path(path).open("rb") as file:
            file.read(1)
    except OSError as error:
        yield name, f"cannot read {path}: {error.strerror or error}"
