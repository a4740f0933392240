"""Keys, tokens made with them, and an authenticator to show them to."""

import contextlib
import inspect
import json
from collections.abc import AsyncIterator
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed25519, rsa

from monarq.clock import SECOND, ManualClock
from monarq.config import Settings
from monarq.errors import UnauthorizedError
from monarq.server.auth import Authenticator
from monarq.server.exchange import Principal

SECRET = "a secret of thirty-two bytes or more"
RSA_KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)
OTHER_RSA_KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)
ED_KEY = ed25519.Ed25519PrivateKey.generate()


def public_pem(key: Any) -> bytes:
    pem: bytes = key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return pem


def jwk(key: Any, kid: str | None = None, **more: Any) -> dict[str, Any]:
    algorithm = (
        jwt.algorithms.RSAAlgorithm
        if isinstance(key, rsa.RSAPrivateKey)
        else jwt.algorithms.OKPAlgorithm
    )
    entry = json.loads(algorithm.to_jwk(key.public_key()))
    entry.pop("key_ops", None)
    return entry | ({"kid": kid} if kid else {}) | more


class Desk:
    """An authenticator with a clock to move."""

    def __init__(self, authenticator: Authenticator, clock: ManualClock) -> None:
        self.authenticator = authenticator
        self.clock = clock

    def claims(self, **more: Any) -> dict[str, Any]:
        return {"sub": "ann", "role": "write", "exp": self.clock.now() // SECOND + 600} | more

    async def bearer(self, credential: str) -> Principal:
        return await self.headers({"authorization": f"Bearer {credential}"})

    async def headers(self, headers: dict[str, str]) -> Principal:
        answer = self.authenticator.authenticate(headers)
        return await answer if inspect.isawaitable(answer) else answer

    async def refused(self, credential: str, match: str | None = None) -> None:
        with pytest.raises(UnauthorizedError, match=match):
            await self.bearer(credential)


@contextlib.asynccontextmanager
async def desk(**settings: Any) -> AsyncIterator[Desk]:
    clock = ManualClock()
    authenticator = Authenticator(Settings(auth=True, **settings), clock=clock)
    await authenticator.start()
    try:
        yield Desk(authenticator, clock)
    finally:
        await authenticator.close()


def signed(claims: dict[str, Any], key: Any = SECRET, algorithm: str = "HS256", **head: Any) -> str:
    return jwt.encode(claims, key, algorithm, headers=head or None)
