"""The keys that tokens are checked with: a shared secret, a public key, a JSON web key set.

Each key is good for one algorithm, the one that its kind says, whatever a token's header asks
for: a public key can never be used as an HS256 secret. Key sets are fetched off the loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import math
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.serialization import load_pem_public_key
from cryptography.x509 import load_pem_x509_certificate
from msgspec import Struct

from monarq.config import Settings
from monarq.errors import SettingsError

logger = logging.getLogger("monarq.auth")

REFRESH_SECONDS = 300.0
RETRY_SECONDS = 10.0
FETCH_TIMEOUT_SECONDS = 10.0
SHORTEST_RSA_BITS = 2048
_LARGEST_SET = 1 << 20
_ALGORITHMS: dict[tuple[Any, Any], str] = {("RSA", None): "RS256", ("OKP", "Ed25519"): "EdDSA"}


class TokenKey(Struct, frozen=True):
    algorithm: str
    key: Any
    id: str | None = None
    """The `kid` that it goes by; None for one that is not part of a set."""


class KeySetError(Exception):
    """The key set cannot be read, or is not one."""


def configured_keys(settings: Settings) -> list[TokenKey]:
    """The secret and the public key that the settings name."""
    keys: list[TokenKey] = []
    if settings.jwt_secret:
        keys.append(TokenKey("HS256", settings.jwt_secret.encode()))
    if settings.jwt_public_key:
        keys.append(_read_public_key(Path(settings.jwt_public_key)))
    return keys


class KeySet:
    """A JSON web key set from a file or URL, read again now and then."""

    def __init__(self, location: str, on_change: Callable[[], None]) -> None:
        self.keys: list[TokenKey] = []
        self._location = location
        self._on_change = on_change
        self._task: asyncio.Task[None] | None = None
        self._reading: asyncio.Task[None] | None = None
        self._read_at = -math.inf
        self._is_url = location.startswith(("http://", "https://"))

    async def start(self) -> None:
        """Read it; a file that is not a key set is an error, a URL is tried again later."""
        try:
            await self._read()
        except KeySetError as error:
            if not self._is_url:
                raise SettingsError(f"jwt_jwks: {error}") from None
            logger.error("no token can be checked yet: %s", error)
        self._task = asyncio.create_task(self._keep_fresh())

    async def close(self) -> None:
        for task in (self._task, self._reading):
            if task is not None:
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task

    def may_read_again(self) -> bool:
        """Unknown key ids, which anybody can send, cause at most one fetch in a while."""
        is_reading = self._reading is not None and not self._reading.done()
        return is_reading or time.monotonic() - self._read_at >= RETRY_SECONDS

    async def read_again(self) -> None:
        """Read it now; those who ask while it is being read share that reading."""
        if self._reading is None or self._reading.done():
            self._reading = asyncio.create_task(self._try_to_read())
        await asyncio.shield(self._reading)

    async def _keep_fresh(self) -> None:
        while True:
            await asyncio.sleep(REFRESH_SECONDS if self.keys else RETRY_SECONDS)
            await self.read_again()

    async def _try_to_read(self) -> None:
        try:
            await self._read()
        except KeySetError as error:
            logger.warning("going on with the token keys that are known: %s", error)

    async def _read(self) -> None:
        self._read_at = time.monotonic()
        source = self._location
        read = _fetch if self._is_url else _read_file
        keys = parse_key_set(await asyncio.to_thread(read, source), source)
        if [_identity(key) for key in keys] != [_identity(key) for key in self.keys]:
            self.keys = keys
            self._on_change()
            logger.info("token keys read", extra={"fields": {"from": source, "keys": len(keys)}})


def parse_key_set(content: bytes, source: str) -> list[TokenKey]:
    """The keys of a set that tokens may be signed with; others are passed over."""
    try:
        entries = json.loads(content)["keys"]
        if not isinstance(entries, list):
            raise TypeError
    except (ValueError, KeyError, TypeError):
        raise KeySetError(f"{source} is not a JSON web key set") from None
    keys = [key for entry in entries if (key := _key_of(entry)) is not None]
    if not keys:
        raise KeySetError(f"{source} has no RSA or Ed25519 key to check signatures with")
    return keys


def _key_of(entry: Any) -> TokenKey | None:
    if not isinstance(entry, dict) or entry.get("use", "sig") != "sig":
        return None
    algorithm = _ALGORITHMS.get((entry.get("kty"), entry.get("crv")))
    # A symmetric key in a set that others can read would let all of them sign.
    if algorithm is None or entry.get("alg", algorithm) not in (algorithm, "Ed25519"):
        return None
    try:
        key = jwt.PyJWK(entry, algorithm=algorithm).key
    except (jwt.exceptions.PyJWTError, ValueError, TypeError) as error:
        logger.warning("a key of the key set is passed over: %s", error)
        return None
    if isinstance(key, RSAPublicKey) and key.key_size < SHORTEST_RSA_BITS:
        logger.warning("a key of the key set is passed over: %d bits are too few", key.key_size)
        return None
    if not isinstance(key, (RSAPublicKey, Ed25519PublicKey)):
        return None  # a private key has no business there
    kid = entry.get("kid")
    return TokenKey(algorithm, key, kid if isinstance(kid, str) else None)


def _read_public_key(path: Path) -> TokenKey:
    try:
        content = path.read_bytes()
        if b"BEGIN CERTIFICATE" in content:
            key: Any = load_pem_x509_certificate(content).public_key()
        else:
            key = load_pem_public_key(content)
    except OSError as error:
        raise SettingsError(f"jwt_public_key: cannot read {path}: {error.strerror}") from None
    except ValueError:
        raise SettingsError(f"jwt_public_key: {path} holds no public key in PEM") from None
    if isinstance(key, Ed25519PublicKey):
        return TokenKey("EdDSA", key)
    if isinstance(key, RSAPublicKey):
        if key.key_size < SHORTEST_RSA_BITS:
            raise SettingsError(f"jwt_public_key: RSA needs at least {SHORTEST_RSA_BITS} bits")
        return TokenKey("RS256", key)
    raise SettingsError(f"jwt_public_key: {path} is neither an RSA nor an Ed25519 key")


def _read_file(location: str) -> bytes:
    try:
        return Path(location).read_bytes()
    except OSError as error:
        raise KeySetError(f"cannot read {location}: {error.strerror or error}") from None


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Keys come from where the settings say, and from nowhere else."""

    def redirect_request(self, *_: Any) -> None:
        return None


def _fetch(url: str) -> bytes:
    opener = urllib.request.build_opener(_NoRedirects)
    try:
        with opener.open(url, timeout=FETCH_TIMEOUT_SECONDS) as answer:
            content: bytes = answer.read(_LARGEST_SET + 1)
    except (OSError, ValueError, urllib.error.URLError) as error:
        raise KeySetError(f"cannot fetch {url}: {error}") from None
    if len(content) > _LARGEST_SET:
        raise KeySetError(f"{url} is larger than {_LARGEST_SET} bytes")
    return content


def _identity(key: TokenKey) -> tuple[str, str | None, Any]:
    numbers = key.key.public_numbers() if key.algorithm == "RS256" else key.key.public_bytes_raw()
    return key.algorithm, key.id, numbers
