"""Sessions of people at the dashboard: a signed cookie in place of the token they signed in with.

The cookie holds who it is and until when, never the token. It is signed with the session key,
which all brokers of a store share (`session_key`) and which is not in the store: whoever reads a
database or its backup cannot sign in by it. A session ends with its time, with its API key, or
when its user signs out: then the store holds its nonce until its time is over, and every process
looks there at most once a second. A cookie alone changes nothing: whoever calls with one must
also send the CSRF token that belongs to it, which other sites cannot read.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import hmac
import secrets
from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol

import msgspec
from msgspec import Struct

from monarq.clock import SECOND, Clock
from monarq.errors import MonarqError, UnauthorizedError
from monarq.operations.operation import Role
from monarq.server.auth import Authenticator
from monarq.server.exchange import Principal

COOKIE = "monarq_session"
SECURE_COOKIE = f"__Host-{COOKIE}"
"""In place of the other under TLS: a browser takes it from this host by TLS only, so that another
service on the host cannot set it."""
LONGEST_SECONDS = 12 * 3600
ENDED = "session_ended."
"""Begins the keys of the store's settings that hold the sessions that were signed out of."""
_LOOK_AGAIN_SECONDS = 1.0
_LONGEST_COOKIE = 4096
_EXPIRED = "the session has ended: sign in again"


class Settings(Protocol):
    """The part of a store that keeps which sessions have ended."""

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
    nonce: str = ""


class Sessions:
    """One a process."""

    def __init__(
        self,
        authenticator: Authenticator,
        key: str,
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
        self._secret = hashlib.sha256(f"monarq session {key}".encode()).digest()
        self._ended: dict[str, str] | None = None
        """Of the sessions that were signed out of: the nonce, and when their time is over."""
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
        # Before the store is asked: a forged cookie must cost nothing.
        session = self._opened(cookie)
        if self._ended is not None and self._monotonic() < self._look_again_at:
            return _unless_ended(session, self._ended).principal
        return self._principal(session)

    async def session(self, headers: dict[str, str]) -> Session:
        """The session of the cookie, or `UnauthorizedError`."""
        cookie = cookie_of(headers, self.cookie_name(headers))
        if cookie is None:
            raise UnauthorizedError("nobody is signed in")
        return _unless_ended(self._opened(cookie), await self._get_ended())

    async def end(self, session: Session) -> None:
        """Have no process on this store accept the session any more."""
        store = self._store()
        await store.set_setting(ENDED + session.nonce, str(session.until))
        self._look_again_at = 0.0
        now = self._clock.now()
        ended = await self._get_ended()
        ended[session.nonce] = str(session.until)
        for nonce, until in list(ended.items()):
            if int(until) <= now:
                await store.set_setting(ENDED + nonce, None)

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
        body = _text(msgspec.json.encode(claims))
        session = self._open(f"{body}.{_signature(self._secret, body)}")
        if session is None:
            raise UnauthorizedError("the token has expired")
        return session

    async def _principal(self, session: Session) -> Principal:
        return _unless_ended(session, await self._get_ended()).principal

    def _opened(self, cookie: str) -> Session:
        session = self._open(cookie)
        if session is None:
            raise UnauthorizedError(_EXPIRED)
        return session

    def _open(self, cookie: str) -> Session | None:
        body, _, signature = cookie.partition(".")
        if not hmac.compare_digest(signature, _signature(self._secret, body)):
            return None
        claims = msgspec.json.decode(_bytes(body), type=_Claims)
        if claims.until <= self._clock.now():
            return None
        role: Role | None = claims.role
        if claims.key_id is not None:
            role = self._authenticator.role_of_key(claims.key_id)
        if role is None:
            return None
        csrf = mac(self._secret, b"csrf", cookie)
        principal = Principal(claims.subject, role, csrf_token=csrf)
        return Session(principal, claims.until, cookie, csrf, claims.nonce)

    async def _get_ended(self) -> dict[str, str]:
        """The ended sessions. While the store is down, as they were."""
        async with self._reading:
            if self._ended is None or self._monotonic() >= self._look_again_at:
                try:
                    found = await self._store().get_settings()
                except MonarqError:
                    if self._ended is None:
                        raise
                else:
                    self._ended = {
                        key.removeprefix(ENDED): until
                        for key, until in found.items()
                        if key.startswith(ENDED)
                    }
                self._look_again_at = self._monotonic() + _LOOK_AGAIN_SECONDS
            return self._ended


def _unless_ended(session: Session, ended: Mapping[str, str]) -> Session:
    if session.nonce in ended:
        raise UnauthorizedError(_EXPIRED)
    return session


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
