"""Who calls: tokens and headers that are accepted, and above all those that are not."""

import base64
import hashlib
import hmac
import json
from pathlib import Path
from typing import Any

import jwt
import pytest

from monarq.api_keys import create_key
from monarq.clock import SECOND
from monarq.errors import ForbiddenError, UnauthorizedError
from monarq.operations.operation import Role
from monarq.server import auth as auth_module
from monarq.server.exchange import Principal
from tests.server.credentials import (
    ED_KEY,
    OTHER_RSA_KEY,
    RSA_KEY,
    SECRET,
    desk,
    public_pem,
    signed,
)


def unsigned_part(value: dict[str, Any]) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()


@pytest.fixture
def rsa_file(tmp_path: Path) -> str:
    path = tmp_path / "rsa.pem"
    path.write_bytes(public_pem(RSA_KEY))
    return str(path)


# --- tokens ---


async def test_each_algorithm_is_accepted_with_its_own_key(tmp_path: Path, rsa_file: str) -> None:
    (tmp_path / "ed.pem").write_bytes(public_pem(ED_KEY))
    expected = Principal("ann", Role.WRITE)
    async with desk(jwt_secret=SECRET) as at:
        assert await at.bearer(signed(at.claims())) == expected
    async with desk(jwt_public_key=rsa_file) as at:
        assert await at.bearer(signed(at.claims(), RSA_KEY, "RS256")) == expected
    async with desk(jwt_public_key=str(tmp_path / "ed.pem")) as at:
        assert await at.bearer(signed(at.claims(), ED_KEY, "EdDSA")) == expected


async def test_a_public_key_is_never_an_hs256_secret(rsa_file: str) -> None:
    pem = public_pem(RSA_KEY)
    async with desk(jwt_public_key=rsa_file, jwt_secret=SECRET) as at:
        head, body = unsigned_part({"alg": "HS256", "typ": "JWT"}), unsigned_part(at.claims())
        for secret in (pem, pem.strip(), base64.b64encode(pem)):
            signature = hmac.new(secret, f"{head}.{body}".encode(), hashlib.sha256).digest()
            mark = base64.urlsafe_b64encode(signature).rstrip(b"=").decode()
            await at.refused(f"{head}.{body}.{mark}", "signature")


@pytest.mark.parametrize("algorithm", ["none", "None", "NONE", "HS512", "RS512", "PS256", "", None])
async def test_no_other_algorithm_is_accepted(algorithm: str | None, rsa_file: str) -> None:
    async with desk(jwt_public_key=rsa_file, jwt_secret=SECRET) as at:
        head, body = unsigned_part({"alg": algorithm}), unsigned_part(at.claims())
        await at.refused(f"{head}.{body}.")
        await at.refused(f"{head}.{body}.AAAA")


async def test_algorithms_can_be_narrowed(rsa_file: str) -> None:
    async with desk(jwt_public_key=rsa_file, jwt_secret=SECRET, jwt_algorithms=["RS256"]) as at:
        await at.bearer(signed(at.claims(), RSA_KEY, "RS256"))
        await at.refused(signed(at.claims()), "not accepted")


async def test_a_changed_or_foreign_token_is_refused(rsa_file: str) -> None:
    async with desk(jwt_public_key=rsa_file) as at:
        head, body, mark = signed(at.claims(), RSA_KEY, "RS256").split(".")
        await at.refused(f"{head}.{unsigned_part(at.claims(role='admin'))}.{mark}", "signature")
        await at.refused(signed(at.claims(), OTHER_RSA_KEY, "RS256"), "signature")
        for broken in (
            f"{head}.{body}",
            f"{head}.{body}.",
            f".{body}.{mark}",
            "x",
            "a.b.c",
            "é.é.é",
        ):
            await at.refused(broken)
        await at.refused("x" * 20_000, "longer than")


async def test_times_are_checked_with_the_leeway() -> None:
    async with desk(jwt_secret=SECRET, jwt_leeway_seconds=30) as at:
        now = at.clock.now() // SECOND
        await at.bearer(signed(at.claims(exp=now - 29)))
        await at.refused(signed(at.claims(exp=now - 30)), "expired")
        await at.bearer(signed(at.claims(nbf=now + 30)))
        await at.refused(signed(at.claims(nbf=now + 31)), "not valid yet")
        await at.bearer(signed(at.claims(iat=now + 30)))
        await at.refused(signed(at.claims(iat=now + 31)), "issued in the future")
        for wrong in ("soon", True, [now], 1e300, float("inf")):
            await at.refused(signed(at.claims(exp=wrong)))
        await at.refused(signed({"sub": "ann", "role": "read"}), "no `exp`")


async def test_a_remembered_token_still_expires() -> None:
    async with desk(jwt_secret=SECRET, jwt_leeway_seconds=0) as at:
        token = signed(at.claims(exp=at.clock.now() // SECOND + 10))
        await at.bearer(token)
        at.clock.advance(9)
        await at.bearer(token)
        at.clock.advance(1)
        await at.refused(token, "expired")


async def test_a_remembered_token_is_not_verified_again(monkeypatch: pytest.MonkeyPatch) -> None:
    decoded = 0
    decode = jwt.decode

    def counting(*args: Any, **kwargs: Any) -> Any:
        nonlocal decoded
        decoded += 1
        return decode(*args, **kwargs)

    monkeypatch.setattr(jwt, "decode", counting)
    async with desk(jwt_secret=SECRET) as at:
        token = signed(at.claims())
        for _ in range(100):
            await at.bearer(token)
        assert decoded == 1
        at.clock.advance(auth_module.REMEMBERED_SECONDS)
        await at.bearer(token)
        assert decoded == 2


async def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auth_module, "REMEMBERED_MAX", 8)
    async with desk(jwt_secret=SECRET) as at:
        for number in range(50):
            assert (await at.bearer(signed(at.claims(sub=f"s{number}")))).subject == f"s{number}"
        assert len(at.authenticator._remembered) <= 8


async def test_issuer_and_audience_must_be_as_set() -> None:
    async with desk(jwt_secret=SECRET, jwt_issuer="us", jwt_audience="broker") as at:
        await at.bearer(signed(at.claims(iss="us", aud="broker")))
        await at.bearer(signed(at.claims(iss="us", aud=["other", "broker"])))
        for wrong in ({}, {"iss": "us"}, {"aud": "broker"}, {"iss": "them", "aud": "broker"}):
            await at.refused(signed(at.claims(**wrong)))
        await at.refused(signed(at.claims(iss="us", aud="brokers")))
    async with desk(jwt_secret=SECRET) as at:
        await at.bearer(signed(at.claims(iss="anyone", aud="anything")))


@pytest.mark.parametrize(
    ("claim", "value", "role"),
    [
        ("role", "read", Role.READ),
        ("role", "read-write", Role.WRITE),
        ("role", ["read", "admin", "something else"], Role.ADMIN),
        ("https://example.org/roles", ["write"], Role.WRITE),
        ("realm_access.roles", ["write"], Role.WRITE),
    ],
)
async def test_the_role_is_the_highest_of_the_claim(claim: str, value: Any, role: Role) -> None:
    async with desk(jwt_secret=SECRET, jwt_role_claim=claim) as at:
        nested = (
            {"realm_access": {"roles": value}} if claim == "realm_access.roles" else {claim: value}
        )
        claims = at.claims()
        del claims["role"]
        assert (await at.bearer(signed(claims | nested))).role is role


@pytest.mark.parametrize("value", [None, "", "Admin", "root", [], [["admin"]], {"admin": 1}, 3])
async def test_a_token_without_a_role_is_forbidden(value: Any) -> None:
    async with desk(jwt_secret=SECRET) as at:
        with pytest.raises(ForbiddenError, match="gives no role"):
            await at.bearer(signed(at.claims(role=value)))


@pytest.mark.parametrize("subject", ["", "x" * 256, 7, ["ann"]])
async def test_a_subject_that_cannot_be_stamped_is_refused(subject: Any) -> None:
    async with desk(jwt_secret=SECRET) as at:
        head, body = unsigned_part({"alg": "HS256"}), unsigned_part(at.claims(sub=subject))
        signature = jwt.algorithms.HMACAlgorithm(jwt.algorithms.HMACAlgorithm.SHA256).sign(
            f"{head}.{body}".encode(), SECRET.encode()
        )
        mark = base64.urlsafe_b64encode(signature).rstrip(b"=").decode()
        await at.refused(f"{head}.{body}.{mark}", "`sub`")


# --- headers ---


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"authorization": ""},
        {"authorization": "Bearer"},
        {"authorization": "Bearer "},
        {"authorization": "Basic YTpi"},
        {"authorization": "{token}"},
        {"x-api-key": "{token}"},
        {"authorization": "Bearer {token}", "x-api-key": "mq_a_b"},
        {"cookie": "token={token}"},
    ],
)
async def test_credentials_are_taken_from_nowhere_else(headers: dict[str, str]) -> None:
    async with desk(jwt_secret=SECRET) as at:
        token = signed(at.claims())
        with pytest.raises(UnauthorizedError):
            await at.headers({name: text.format(token=token) for name, text in headers.items()})
        assert (await at.headers({"authorization": f"bearer  {token} "})).subject == "ann"


async def test_no_error_repeats_the_credential(tmp_path: Path) -> None:
    keys = tmp_path / "keys.json"
    create_key(keys, name="a", role="read", now=0)
    async with desk(jwt_secret=SECRET, api_keys=str(keys)) as at:
        for credential in ("mq_hunter2_hunter2", "hunter2", "hunter2.hunter2.hunter2"):
            with pytest.raises(UnauthorizedError) as raised:
                await at.bearer(credential)
            assert "hunter2" not in str(raised.value)
