"""Sessions of people at the dashboard: a signed cookie in place of the token they signed in with.

The cookie holds who it is and until when, never the token. It is signed with a secret that all
brokers on a store share, so that any process may check it; the secret stays in the store's
settings, and is neither logged nor shown. A cookie alone changes nothing: whoever calls with one
must also send the CSRF token that belongs to it, which other sites cannot read.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import hmac
import secrets
from collections.abc import Awaitable, Callable
from typing import Protocol

import msgspec
from msgspec import Struct

from monarq.clock import SECOND, Clock
from monarq.errors import UnauthorizedError
from monarq.server.auth import Authenticator
from monarq.server.exchange import Principal, Role

COOKIE = "monarq_session"
SECURE_COOKIE = f"__Host-{COOKIE}"
"""In place of the other under TLS: a browser takes it from this host by TLS only, so that another
service on the host cannot set it."""
LONGEST_SECONDS = 12 * 3600
SETTING = "session_secret"
_LOOK_AGAIN_SECONDS = 1.0
_LONGEST_COOKIE = 4096
_EXPIRED = "the session has ended: sign in again"


class Settings(Protocol):
    """The part of a store that keeps the secret."""

    async def get_settings(self) -> dict[str, str]: ...

    async def set_setting(self, key: str, value: str | None) -> None: ...


class _Claims(Struct, frozen=True, array_like=True):
    subject: str | None
    role: Role
    until: int
    key_id: str | None
    """Of the API key that was signed in with: the session ends with it."""
    nonce: str


class Session(Struct, frozen=True):
    principal: Principal
    until: int
    cookie: str
    csrf_token: str


class Sessions:
    """One a process."""

    def __init__(
        self,
        authenticator: Authenticator,
        store: Callable[[], Settings],
        clock: Clock,
        monotonic: Callable[[], float],
        *,
        tls: bool = False,
    ) -> None:
        self._authenticator = authenticator
        self._store = store
        self._clock = clock
        self._monotonic = monotonic
        self._tls = tls
        self._secret: bytes | None = None
        self._look_again_at = 0.0
        self._reading = asyncio.Lock()

    def is_secure(self, headers: dict[str, str]) -> bool:
        """Return whether the browser came by TLS, to us or to a proxy in front."""
        return self._tls or headers.get("x-forwarded-proto", "").lower() == "https"

    def cookie_name(self, headers: dict[str, str]) -> str:
        return SECURE_COOKIE if self.is_secure(headers) else COOKIE

    def authenticate(self, headers: dict[str, str]) -> Principal | Awaitable[Principal]:
        """Who calls: by the credentials in the headers, or else by the cookie."""
        if "authorization" in headers or "x-api-key" in headers:
            return self._authenticator.authenticate(headers)
        cookie = cookie_of(headers, self.cookie_name(headers))
        if cookie is None:
            return self._authenticator.authenticate(headers)
        if self._secret is not None:
            session = self._open(cookie, self._secret)
            if session is not None:
                return session.principal
            if self._monotonic() < self._look_again_at:
                raise UnauthorizedError(_EXPIRED)
        return self._principal(headers)

    async def session(self, headers: dict[str, str]) -> Session:
        """The session of the cookie, or `UnauthorizedError`."""
        cookie = cookie_of(headers, self.cookie_name(headers))
        if cookie is None:
            raise UnauthorizedError("nobody is signed in")
        session = self._open(cookie, await self._get_secret())
        if session is None:
            # It may have been signed with a secret that another process made just now.
            session = self._open(cookie, await self._read_again())
        if session is None:
            raise UnauthorizedError(_EXPIRED)
        return session

    async def sign_in(self, credential: str) -> Session:
        """`UnauthorizedError` if it is not good, `ForbiddenError` if it gives no role."""
        verified = await self._authenticator.identify(credential)
        until = min(verified.until, self._clock.now() + LONGEST_SECONDS * SECOND)
        claims = _Claims(
            verified.principal.subject,
            verified.principal.role,
            until,
            verified.key_id,
            secrets.token_urlsafe(9),
        )
        secret = await self._read_again()
        body = _text(msgspec.json.encode(claims))
        session = self._open(f"{body}.{_signature(secret, body)}", secret)
        if session is None:
            raise UnauthorizedError("the token has expired")
        return session

    async def _principal(self, headers: dict[str, str]) -> Principal:
        return (await self.session(headers)).principal

    def _open(self, cookie: str, secret: bytes) -> Session | None:
        body, _, signature = cookie.partition(".")
        if not hmac.compare_digest(signature, _signature(secret, body)):
            return None
        claims = msgspec.json.decode(_bytes(body), type=_Claims)
        if claims.until <= self._clock.now():
            return None
        role: Role | None = claims.role
        if claims.key_id is not None:
            role = self._authenticator.role_of_key(claims.key_id)
        if role is None:
            return None
        csrf = mac(secret, b"csrf", cookie)
        return Session(Principal(claims.subject, role, csrf_token=csrf), claims.until, cookie, csrf)

    # --- the secret --------------------------------------------------------------------------

    async def _get_secret(self) -> bytes:
        return self._secret if self._secret is not None else await self._read_again()

    async def _read_again(self) -> bytes:
        async with self._reading:
            if self._secret is not None and self._monotonic() < self._look_again_at:
                return self._secret
            store = self._store()
            found = (await store.get_settings()).get(SETTING)
            if found is None:
                await store.set_setting(SETTING, secrets.token_hex(32))
                # Another process may have done so too: what is there now holds for all.
                found = (await store.get_settings())[SETTING]
            self._secret = hashlib.sha256(f"monarq session {found}".encode()).digest()
            self._look_again_at = self._monotonic() + _LOOK_AGAIN_SECONDS
            return self._secret


def cookie_of(headers: dict[str, str], cookie: str = COOKIE) -> str | None:
    """The session's cookie, if the request has one."""
    for part in headers.get("cookie", "").split(";"):
        name, _, value = part.strip().partition("=")
        if name == cookie and 0 < len(value) <= _LONGEST_COOKIE and value.isascii():
            return value
    return None


def set_cookie(session: Session, now: int, *, is_secure: bool, name: str = COOKIE) -> bytes:
    seconds = max(0, (session.until - now) // SECOND)
    return _cookie(f"{name}={session.cookie}; Max-Age={seconds}", is_secure)


def clear_cookie(*, is_secure: bool, name: str = COOKIE) -> bytes:
    return _cookie(f"{name}=; Max-Age=0", is_secure)


def _cookie(start: str, is_secure: bool) -> bytes:
    secure = "; Secure" if is_secure else ""
    return f"{start}; Path=/; HttpOnly; SameSite=Strict{secure}".encode()


def _signature(secret: bytes, body: str) -> str:
    return mac(secret, b"session", body)


def mac(secret: bytes, purpose: bytes, text: str) -> str:
    return _text(hmac.digest(secret, purpose + b":" + text.encode(), "sha256"))


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _bytes(text: str) -> bytes:
    try:
        return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except (binascii.Error, ValueError):
        return b""
