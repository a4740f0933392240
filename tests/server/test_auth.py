"""Who calls: what is accepted, and above all what is not."""

import asyncio
import base64
import contextlib
import hashlib
import hmac
import inspect
import json
import os
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from monarq.api_keys import create_key, revoke_key
from monarq.clock import SECOND, ManualClock
from monarq.config import Settings
from monarq.errors import ForbiddenError, SettingsError, UnauthorizedError
from monarq.server import auth as auth_module
from monarq.server import token_keys
from monarq.server.auth import Authenticator
from monarq.server.exchange import Principal, Role
from tests.server.plain_server import Handler, answering

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


def unsigned_part(value: dict[str, Any]) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()


@pytest.fixture
def rsa_file(tmp_path: Path) -> str:
    path = tmp_path / "rsa.pem"
    path.write_bytes(public_pem(RSA_KEY))
    return str(path)


# --- tokens ------------------------------------------------------------------------


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


# --- headers -----------------------------------------------------------------------


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


# --- key sets ----------------------------------------------------------------------


class KeyServer:
    """A key set at a URL."""

    def __init__(self) -> None:
        self.url = ""
        self.keys: list[dict[str, Any]] = []
        self.fetched = 0
        self.status = 200


@pytest.fixture
def key_server() -> Iterator[KeyServer]:
    state = KeyServer()

    class Keys(Handler):
        def answer(self) -> None:
            state.fetched += 1
            self.send_response(state.status)
            if state.status == 302:
                self.send_header("Location", "/elsewhere")
            self.end_headers()
            self.wfile.write(json.dumps({"keys": state.keys}).encode())

    with answering(Keys) as url:
        state.url = f"{url}/keys"
        yield state


async def test_a_key_set_checks_by_key_id(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    path.write_text(json.dumps({"keys": [jwk(RSA_KEY, "one"), jwk(ED_KEY, "two")]}))
    async with desk(jwt_jwks=str(path)) as at:
        await at.bearer(signed(at.claims(), RSA_KEY, "RS256", kid="one"))
        await at.bearer(signed(at.claims(), ED_KEY, "EdDSA", kid="two"))
        await at.refused(signed(at.claims(), RSA_KEY, "RS256", kid="two"))
        await at.refused(signed(at.claims(), OTHER_RSA_KEY, "RS256", kid="one"), "signature")


@pytest.mark.filterwarnings("ignore:The RSA key is")
async def test_symmetric_encryption_and_weak_keys_of_a_set_are_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    symmetric = {"kty": "oct", "k": base64.urlsafe_b64encode(SECRET.encode()).decode(), "kid": "s"}
    weak = rsa.generate_private_key(public_exponent=65537, key_size=1024)
    entries = [
        symmetric,
        jwk(weak, "weak"),
        jwk(OTHER_RSA_KEY, "enc", use="enc"),
        jwk(OTHER_RSA_KEY, "pss", alg="PS256"),
        {"kty": "RSA", "kid": "broken"},
        "nonsense",
        jwk(RSA_KEY, "good"),
    ]
    path.write_text(json.dumps({"keys": entries}))
    async with desk(jwt_jwks=str(path)) as at:
        await at.bearer(signed(at.claims(), RSA_KEY, "RS256", kid="good"))
        await at.refused(signed(at.claims(), SECRET, "HS256", kid="s"))
        await at.refused(signed(at.claims(), weak, "RS256", kid="weak"))
        for kid in ("enc", "pss"):
            await at.refused(signed(at.claims(), OTHER_RSA_KEY, "RS256", kid=kid))


async def test_a_new_key_of_the_set_is_fetched_when_a_token_names_it(
    key_server: KeyServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(token_keys, "RETRY_SECONDS", 0.0)
    key_server.keys = [jwk(RSA_KEY, "one")]
    async with desk(jwt_jwks=key_server.url) as at:
        assert key_server.fetched == 1
        await at.bearer(signed(at.claims(), RSA_KEY, "RS256", kid="one"))
        assert key_server.fetched == 1
        key_server.keys = [jwk(OTHER_RSA_KEY, "two")]
        token = signed(at.claims(), OTHER_RSA_KEY, "RS256", kid="two")
        answers = await asyncio.gather(*(at.bearer(token) for _ in range(20)))
        assert {answer.subject for answer in answers} == {"ann"}
        assert key_server.fetched == 2
        # A key that was taken out of the set is no longer good, remembered or not.
        await at.refused(signed(at.claims(), RSA_KEY, "RS256", kid="one"))


async def test_unknown_key_ids_do_not_cause_a_fetch_each(key_server: KeyServer) -> None:
    key_server.keys = [jwk(RSA_KEY, "one")]
    async with desk(jwt_jwks=key_server.url) as at:
        for number in range(50):
            await at.refused(signed(at.claims(), OTHER_RSA_KEY, "RS256", kid=f"k{number}"))
        assert key_server.fetched == 1


async def test_known_keys_stay_good_while_the_set_cannot_be_fetched(
    key_server: KeyServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(token_keys, "RETRY_SECONDS", 0.0)
    key_server.keys = [jwk(RSA_KEY, "one")]
    async with desk(jwt_jwks=key_server.url) as at:
        for status in (500, 302):
            key_server.status = status
            await at.refused(signed(at.claims(), OTHER_RSA_KEY, "RS256", kid="two"))
            await at.bearer(signed(at.claims(), RSA_KEY, "RS256", kid="one"))
        assert key_server.fetched == 3  # a redirect is not followed


async def test_a_url_that_is_down_at_the_start_is_tried_again(
    key_server: KeyServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(token_keys, "RETRY_SECONDS", 0.0)
    key_server.status = 503
    async with desk(jwt_jwks=key_server.url) as at:
        key_server.status, key_server.keys = 200, [jwk(RSA_KEY)]
        await at.bearer(signed(at.claims(), RSA_KEY, "RS256"))


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"keys": 3}', '{"keys": []}', "\x00"])
async def test_a_file_that_is_no_key_set_stops_the_start(content: str, tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    path.write_text(content)
    with pytest.raises(SettingsError, match="jwt_jwks"):
        async with desk(jwt_jwks=str(path)):
            pass


async def test_a_public_key_of_another_kind_stops_the_start(tmp_path: Path) -> None:
    path = tmp_path / "key.pem"
    curve = ec.generate_private_key(ec.SECP256R1())
    weak = rsa.generate_private_key(public_exponent=65537, key_size=1024)
    for content in (b"", b"nonsense", public_pem(curve), public_pem(weak)):
        path.write_bytes(content)
        with pytest.raises(SettingsError, match="jwt_public_key"):
            async with desk(jwt_public_key=str(path)):
                pass


# --- API keys ----------------------------------------------------------------------


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    return tmp_path / "keys.json"


def write(path: Path, content: str) -> None:
    path.write_text(content)


def remove(path: Path) -> None:
    path.unlink()


@pytest.fixture
def look_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auth_module, "LOOK_AGAIN_SECONDS", 0.0)


async def test_an_api_key_is_accepted_in_both_headers(key_file: Path) -> None:
    key, _ = create_key(key_file, name="billing", role="write", now=0)
    async with desk(api_keys=str(key_file)) as at:
        expected = Principal("billing", Role.WRITE)
        assert await at.bearer(key) == expected
        assert await at.headers({"x-api-key": key}) == expected


async def test_a_wrong_or_cut_api_key_is_refused(key_file: Path) -> None:
    key, kept = create_key(key_file, name="a", role="admin", now=0)
    other, _ = create_key(key_file, name="b", role="read", now=0)
    mixed = "_".join([*key.split("_", 2)[:2], other.split("_", 2)[2]])
    async with desk(api_keys=str(key_file)) as at:
        for wrong in (key[:-1], key + "x", mixed, "mq_", "mq__", f"mq_{kept.id}_", f"mq_{kept.id}"):
            await at.refused(wrong, "API key")
        await at.refused(f"mq_{kept.id}_{kept.hash}", "API key")
        await at.refused(f"mq__{'0' * 64}", "API key")


def test_the_file_holds_no_key_and_is_its_owners_alone(key_file: Path) -> None:
    key, _ = create_key(key_file, name="a", role="admin", now=0)
    assert key.split("_", 2)[2] not in key_file.read_text()
    assert key_file.stat().st_mode & 0o777 == 0o600


async def test_a_revoked_key_is_refused_although_it_was_remembered(
    key_file: Path, look_at_once: None
) -> None:
    key, kept = create_key(key_file, name="a", role="write", now=0)
    async with desk(api_keys=str(key_file)) as at:
        await at.bearer(key)
        later, _ = create_key(key_file, name="b", role="write", now=0)
        assert (await at.bearer(later)).subject == "b"
        revoke_key(key_file, kept.id)
        await at.refused(key, "revoked")
        await at.bearer(later)
        remove(key_file)
        await at.refused(later, "not known")


async def test_a_broken_edit_of_the_file_locks_nobody_out(
    key_file: Path, look_at_once: None
) -> None:
    key, _ = create_key(key_file, name="a", role="write", now=0)
    async with desk(api_keys=str(key_file)) as at:
        write(key_file, '{"keys": [')
        assert (await at.bearer(key)).subject == "a"


async def test_an_api_key_expires(key_file: Path) -> None:
    async with desk(jwt_secret=SECRET) as at:
        ends = at.clock.now() + 10 * SECOND
    key, _ = create_key(key_file, name="a", role="write", now=0, expires_at=ends)
    async with desk(api_keys=str(key_file)) as at:
        await at.bearer(key)
        at.clock.advance(10)
        await at.refused(key, "expired")


async def test_api_keys_are_refused_where_none_are_configured() -> None:
    async with desk(jwt_secret=SECRET) as at:
        await at.refused("mq_abc_def", "not accepted here")


@pytest.mark.parametrize("content", ["", "[]", '{"keys": [{"id": 1}]}'])
async def test_a_file_that_holds_no_keys_stops_the_start(content: str, key_file: Path) -> None:
    write(key_file, content)
    with pytest.raises(SettingsError, match="api_keys"):
        async with desk(api_keys=str(key_file)):
            pass


def test_keys_made_at_the_same_time_are_all_kept(key_file: Path) -> None:
    def make() -> None:
        for _ in range(10):
            create_key(key_file, name=str(os.getpid()), role="read", now=0)

    threads = [threading.Thread(target=make) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(json.loads(key_file.read_text())["keys"]) == 40
