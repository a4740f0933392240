"""Key sets, from a file or a URL, and the keys in them that are good for tokens."""

import asyncio
import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from monarq.errors import SettingsError
from monarq.server import token_keys
from tests.server.credentials import (
    ED_KEY,
    OTHER_RSA_KEY,
    RSA_KEY,
    SECRET,
    desk,
    jwk,
    public_pem,
    signed,
)
from tests.server.plain_server import Handler, answering


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
