"""Tells callers apart where authentication is off: the broker's own user, and anybody.

Anybody may do everything but run commands. The broker's user proves itself by the token of
`monarq.local_token`, in a header or as a bearer token. The dashboard cannot read that file, so
`monarq serve` prints a link with a code; the page exchanges it for a cookie, which no script can
read. The cookie counts only together with the CSRF token that the page was told, which pages of
other sites cannot read. It is signed with a key derived from the token, so it outlives a restart
of the broker, and ends with the token.
"""

from __future__ import annotations

import hmac
import logging
import secrets

from monarq import local_token
from monarq.clock import SECOND, Clock
from monarq.errors import SettingsError, UnauthorizedError
from monarq.operations.operation import Role
from monarq.server.exchange import Principal
from monarq.server.sessions import LONGEST_SECONDS, Session, cookie_of, mac

logger = logging.getLogger("monarq.auth")

COOKIE = "monarq_local"
ANYBODY = Principal(None, Role.ADMIN, is_proven=False)
OWNER = Principal(None, Role.ADMIN)
_HEADER = local_token.HEADER.lower()


def nobody_is_proven(headers: dict[str, str]) -> Principal:
    return ANYBODY


def new_link_code() -> str:
    """A code for the link to the dashboard; it holds until the broker stops."""
    return secrets.token_urlsafe(24)


class LocalCallers:
    """Made once a process. Without a token nobody can prove anything."""

    def __init__(self, token: str | None, link_code: str | None, clock: Clock) -> None:
        self._token = token
        self._link_code = link_code
        self._clock = clock

    @classmethod
    def start(cls, link_code: str | None, clock: Clock) -> LocalCallers:
        """Read this user's token, or make it. If that fails, log why and go on without."""
        try:
            token = local_token.make_token()
        except SettingsError as error:
            logger.warning("nobody can run commands over HTTP: %s", error)
            return cls(None, None, clock)
        return cls(token, link_code, clock)

    def identify(self, headers: dict[str, str]) -> Principal:
        """Return `OWNER` for a caller who proves to be the broker's user, `ANYBODY` otherwise."""
        given = headers.get(_HEADER)
        if given is not None:
            return OWNER if self._is_token(given) else ANYBODY
        authorization = headers.get("authorization")
        if authorization is not None:
            scheme, _, credential = authorization.partition(" ")
            is_token = scheme.lower() == "bearer" and self._is_token(credential.strip())
            return OWNER if is_token else ANYBODY
        csrf_token = headers.get("x-csrf-token")
        if csrf_token is None:
            return ANYBODY
        session = self.session(headers)
        is_page = session is not None and _equal(csrf_token, session.csrf_token)
        return OWNER if is_page else ANYBODY

    def session(self, headers: dict[str, str]) -> Session | None:
        """The session of the cookie, if it is good."""
        cookie = cookie_of(headers, COOKIE)
        return None if cookie is None or self._token is None else self._open(cookie, self._token)

    def sign_in(self, code: str) -> Session:
        """Exchange the code of the link, or the token itself, for a session."""
        is_code = self._link_code is not None and _equal(code, self._link_code)
        if not is_code and not self._is_token(code):
            raise UnauthorizedError(
                "this link is of an earlier start of the broker, or of another one: open the "
                "link that `monarq serve` printed last"
            )
        assert self._token is not None
        until = self._clock.now() + LONGEST_SECONDS * SECOND
        body = f"{until}.{secrets.token_urlsafe(9)}"
        session = self._open(f"{body}.{_signature(self._token, body)}", self._token)
        assert session is not None
        return session

    def _open(self, cookie: str, token: str) -> Session | None:
        body, _, signature = cookie.rpartition(".")
        if not _equal(signature, _signature(token, body)):
            return None
        until = int(body.partition(".")[0])
        if until <= self._clock.now():
            return None
        csrf = mac(token.encode(), b"local csrf", cookie)
        return Session(OWNER, until, cookie, csrf)

    def _is_token(self, given: str) -> bool:
        if self._token is not None and _equal(given, self._token):
            return True
        # Another broker of this user may have replaced the file.
        found = local_token.trusted_token()
        if found is None or found == self._token or not _equal(given, found):
            return False
        self._token = found
        return True


def _signature(token: str, body: str) -> str:
    return mac(token.encode(), b"local session", body)


def _equal(given: str, expected: str) -> bool:
    return hmac.compare_digest(given.encode("utf-8", "surrogateescape"), expected.encode())
