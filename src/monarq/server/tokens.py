"""Checks a JSON web token: its signature, its times, who issued it and for whom, and the role."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import jwt
from msgspec import Struct

from monarq.clock import SECOND, Clock
from monarq.config import Settings
from monarq.errors import ForbiddenError, UnauthorizedError
from monarq.operations.operation import Role
from monarq.server.exchange import Principal
from monarq.server.token_keys import TokenKey

LONGEST_TOKEN = 16_384
LONGEST_SUBJECT = 255
#: Also by the names that Queen's tokens have for them.
ROLES = {
    "read": Role.READ,
    "read-only": Role.READ,
    "write": Role.WRITE,
    "read-write": Role.WRITE,
    "jobs": Role.JOBS,
    "admin": Role.ADMIN,
}
_RANKS = {role: rank for rank, role in enumerate(Role)}


class Verified(Struct, frozen=True):
    principal: Principal
    until: int
    """From when on the token is no longer good, in microseconds since the epoch."""
    key_id: str | None = None
    """Of an API key."""


class UnknownKeyError(UnauthorizedError):
    """None of the keys is one that this token can have been signed with."""


class TokenVerifier:
    """Verifies with whatever keys there are at the time."""

    def __init__(
        self, settings: Settings, clock: Clock, keys: Callable[[], Iterable[TokenKey]]
    ) -> None:
        self._allowed = frozenset(settings.jwt_algorithms)
        self._issuer = settings.jwt_issuer or None
        self._audience = settings.jwt_audience or None
        self._leeway = settings.jwt_leeway_seconds
        self._role_claim = settings.jwt_role_claim
        self._clock = clock
        self._keys = keys

    def verify(self, token: str) -> Verified:
        """Who the token is for. `UnauthorizedError` if it is not good, `ForbiddenError` if it
        is but gives no role."""
        claims = self._signed_claims(token)
        until = self._check_times(claims)
        subject = claims.get("sub")
        if subject is not None and not (
            isinstance(subject, str) and 0 < len(subject) <= LONGEST_SUBJECT
        ):
            raise UnauthorizedError(
                f"the token's `sub` must be text of 1 to {LONGEST_SUBJECT} characters"
            )
        return Verified(Principal(subject, self._role(claims)), until)

    def _signed_claims(self, token: str) -> dict[str, Any]:
        if len(token) > LONGEST_TOKEN:
            raise UnauthorizedError(f"the token is longer than {LONGEST_TOKEN} characters")
        try:
            header = jwt.get_unverified_header(token)
        except jwt.exceptions.PyJWTError:
            raise UnauthorizedError("the bearer is neither a token nor an API key") from None
        algorithm, kid = header.get("alg"), header.get("kid")
        candidates = self._candidates(algorithm, kid)
        for key in candidates:
            try:
                claims: dict[str, Any] = jwt.decode(
                    token,
                    key.key,
                    algorithms=[key.algorithm],
                    issuer=self._issuer,
                    audience=self._audience,
                    # Times are checked here, by our own clock.
                    options={
                        "verify_exp": False,
                        "verify_nbf": False,
                        "verify_iat": False,
                        "verify_sub": False,
                        "verify_aud": self._audience is not None,
                        "verify_iss": self._issuer is not None,
                    },
                )
            except jwt.exceptions.InvalidSignatureError:
                continue
            except jwt.exceptions.PyJWTError as error:
                raise UnauthorizedError(f"the token is not valid: {error}") from None
            return claims
        if candidates:
            raise UnauthorizedError("the token is not valid: its signature does not match")
        raise UnknownKeyError(
            "the token is signed with a key or algorithm that is not accepted here"
        )

    def _candidates(self, algorithm: Any, kid: Any) -> list[TokenKey]:
        usable = [
            key
            for key in self._keys()
            if key.algorithm == algorithm and (not self._allowed or algorithm in self._allowed)
        ]
        named = [key for key in usable if key.id is not None and key.id == kid]
        return named or [key for key in usable if key.id is None or kid is None]

    def _check_times(self, claims: dict[str, Any]) -> int:
        now = self._clock.now() / SECOND
        expires = _number(claims, "exp")
        if expires is None:
            raise UnauthorizedError("the token is not valid: it has no `exp`")
        if now >= expires + self._leeway:
            raise UnauthorizedError("the token has expired")
        begins = _number(claims, "nbf")
        if begins is not None and now < begins - self._leeway:
            raise UnauthorizedError("the token is not valid yet (`nbf`)")
        issued = _number(claims, "iat")
        if issued is not None and now < issued - self._leeway:
            raise UnauthorizedError("the token was issued in the future (`iat`)")
        return round((expires + self._leeway) * SECOND)

    def _role(self, claims: dict[str, Any]) -> Role:
        value = _claim(claims, self._role_claim)
        names = [value] if isinstance(value, str) else value if isinstance(value, list) else []
        roles = [ROLES[name] for name in names if isinstance(name, str) and name in ROLES]
        if not roles:
            raise ForbiddenError(
                f"the token's claim {self._role_claim!r} gives no role: "
                "it must be (or contain) read, write or admin"
            )
        return max(roles, key=_RANKS.__getitem__)


def _claim(claims: dict[str, Any], name: str) -> Any:
    """By its name, or by a path into nested claims: `realm_access.roles`."""
    if name in claims:
        return claims[name]
    value: Any = claims
    for part in name.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return value


def _number(claims: dict[str, Any], name: str) -> float | None:
    value = claims.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not abs(value) < 2**53:
        raise UnauthorizedError(f"the token is not valid: its `{name}` is no point in time")
    return float(value)
