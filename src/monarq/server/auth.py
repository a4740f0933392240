"""Says who calls, by a bearer token or an API key in the request's headers.

Never looks at a URL, and never logs what a caller proves itself with. What was verified is
remembered for a short while by its hash, so that a signature is not checked for every request.
"""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Awaitable
from pathlib import Path

from monarq.api_keys import PREFIX, ApiKey, read_keys, split_key
from monarq.clock import SECOND, Clock, SystemClock
from monarq.config import Settings
from monarq.errors import SettingsError, UnauthorizedError
from monarq.operations.operation import Role
from monarq.server.exchange import Principal
from monarq.server.token_keys import KeySet, TokenKey, configured_keys
from monarq.server.tokens import TokenVerifier, UnknownKeyError, Verified

logger = logging.getLogger("monarq.auth")

REMEMBERED_SECONDS = 60
REMEMBERED_MAX = 4096
LOOK_AGAIN_SECONDS = 1.0


class Authenticator:
    """Made once a process; `start` it before use."""

    def __init__(self, settings: Settings, *, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._remembered: dict[bytes, Verified] = {}
        self._own_keys = configured_keys(settings)
        self._key_set = KeySet(settings.jwt_jwks, self._forget) if settings.jwt_jwks else None
        self._verifier = TokenVerifier(settings, self._clock, self._token_keys)
        self._api_keys = _ApiKeys(Path(settings.api_keys)) if settings.api_keys else None

    async def start(self) -> None:
        """Read the keys. `SettingsError` if they are not what they should be."""
        if self._api_keys is not None:
            self._api_keys.read()
        if self._key_set is not None:
            await self._key_set.start()

    async def close(self) -> None:
        if self._key_set is not None:
            await self._key_set.close()

    def authenticate(self, headers: dict[str, str]) -> Principal | Awaitable[Principal]:
        """Who calls. `headers` by lower-case name. Only where a key set must be read again first
        is the answer one to wait for.

        `UnauthorizedError` without good credentials, `ForbiddenError` for those without a role.
        """
        credential = _credential(headers)
        if self._api_keys is not None and self._api_keys.has_changed():
            self._forget()
        digest = hashlib.sha256(credential.encode("utf-8", "surrogateescape")).digest()
        found = self._remembered.get(digest)
        now = self._clock.now()
        if found is not None and now < found.until:
            return found.principal
        try:
            return self._remember(digest, self._verify(credential))
        except UnknownKeyError:
            if self._key_set is None or not self._key_set.may_read_again():
                raise
        return self._with_new_keys(self._key_set, digest, credential)

    async def identify(self, credential: str) -> Verified:
        """Who a credential is for, and until when; the errors are those of `authenticate`."""
        if self._api_keys is not None and self._api_keys.has_changed():
            self._forget()
        try:
            return self._verify(credential)
        except UnknownKeyError:
            if self._key_set is None or not self._key_set.may_read_again():
                raise
        await self._key_set.read_again()
        return self._verify(credential)

    def role_of_key(self, key_id: str) -> Role | None:
        """What an API key allows now; None if it was revoked or has expired."""
        if self._api_keys is None:
            return None
        if self._api_keys.has_changed():
            self._forget()
        return self._api_keys.role_of(key_id, self._clock.now())

    async def _with_new_keys(self, keys: KeySet, digest: bytes, credential: str) -> Principal:
        await keys.read_again()
        return self._remember(digest, self._verify(credential))

    def _remember(self, digest: bytes, verified: Verified) -> Principal:
        if len(self._remembered) >= REMEMBERED_MAX:
            self._remembered.clear()
        until = min(verified.until, self._clock.now() + REMEMBERED_SECONDS * SECOND)
        self._remembered[digest] = Verified(verified.principal, until)
        return verified.principal

    def _verify(self, credential: str) -> Verified:
        if not credential.startswith(PREFIX):
            return self._verifier.verify(credential)
        if self._api_keys is None:
            raise UnauthorizedError("API keys are not accepted here")
        return self._api_keys.verify(credential, self._clock.now())

    def _token_keys(self) -> list[TokenKey]:
        return self._own_keys + (self._key_set.keys if self._key_set else [])

    def _forget(self) -> None:
        self._remembered.clear()


class _ApiKeys:
    """The keys of a file, read again when it changes."""

    def __init__(self, path: Path) -> None:
        self._path = path.expanduser()
        self._keys: dict[str, ApiKey] = {}
        self._state: tuple[int, ...] | None = None
        self._look_again_at = 0.0

    def read(self) -> None:
        self._state = self._file_state()
        self._keys = {key.id: key for key in read_keys(self._path)}
        for key in self._keys.values():
            if key.role not in {role.value for role in Role}:
                raise SettingsError(f"api_keys: key {key.id} has no role {key.role!r}")

    def has_changed(self) -> bool:
        """Whether the file changed since it was last read; it is read again then."""
        now = time.monotonic()
        if now < self._look_again_at:
            return False
        self._look_again_at = now + LOOK_AGAIN_SECONDS
        state = self._file_state()
        if state == self._state:
            return False
        try:
            if state is None:
                self._state, self._keys = None, {}
                logger.warning("the file of API keys is gone: none is accepted any more")
            else:
                self.read()
                logger.info("API keys read", extra={"fields": {"keys": len(self._keys)}})
        except SettingsError as error:
            # Half an edit by hand must not lock everybody out.
            logger.error("going on with the API keys that are known: %s", error)
        return True

    def verify(self, credential: str, now: int) -> Verified:
        parts = split_key(credential)
        key = self._keys.get(parts[0]) if parts else None
        # An unknown id takes as long as a wrong secret.
        matches = (key or _NOBODY).matches(parts[1] if parts else "")
        if key is None or not matches:
            raise UnauthorizedError("the API key is not known here, or was revoked")
        if key.expires_at is not None and now >= key.expires_at:
            raise UnauthorizedError("the API key has expired")
        until = key.expires_at if key.expires_at is not None else 2**63
        return Verified(Principal(key.name, Role(key.role)), until, key.id)

    def role_of(self, key_id: str, now: int) -> Role | None:
        key = self._keys.get(key_id)
        if key is None or (key.expires_at is not None and now >= key.expires_at):
            return None
        return Role(key.role)

    def _file_state(self) -> tuple[int, ...] | None:
        try:
            status = self._path.stat()
        except OSError:
            return None
        return status.st_mtime_ns, status.st_size, status.st_ino


_NOBODY = ApiKey(id="", name="", role="", salt="00" * 16, hash="00" * 32, created_at=0)


def _credential(headers: dict[str, str]) -> str:
    authorization = headers.get("authorization")
    key = headers.get("x-api-key")
    if authorization is None:
        if key is None:
            raise UnauthorizedError(
                "credentials are needed: `Authorization: Bearer <token or API key>`, "
                "or `X-API-Key: <API key>`"
            )
        if not key.startswith(PREFIX):
            raise UnauthorizedError(f"X-API-Key must hold an API key, which begins {PREFIX}")
        return key
    if key is not None:
        raise UnauthorizedError("send either `Authorization` or `X-API-Key`, not both")
    scheme, _, credential = authorization.partition(" ")
    credential = credential.strip()
    if scheme.lower() != "bearer" or not credential:
        raise UnauthorizedError("`Authorization` must be `Bearer <token or API key>`")
    return credential
