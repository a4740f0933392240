"""The key of the sessions is not in the store, and brokers of a store notice when they differ."""

import base64
import hashlib
import hmac
import sqlite3
import stat
import time
from pathlib import Path
from typing import Any

import jwt
import pytest

from monarq.clock import SystemClock
from monarq.config import Settings
from monarq.server.session_key import FINGERPRINT, fingerprint, session_key, settle
from monarq.settings_checks import contradictions
from monarq.store import open_store
from tests.server.conftest import StartServer
from tests.server.serving import Answer, ServerProcess

SECRET = "a secret of thirty-two bytes or more"
SESSION = "/api/v1/session"
OTHER = "signs sessions with another key"


def sign_in(server: ServerProcess) -> dict[str, str]:
    """The headers of a page that somebody signed in at."""
    claims = {"sub": "ann", "role": "admin", "exp": SystemClock().now() // 10**6 + 600}
    answer = server.post(SESSION, {"token": jwt.encode(claims, SECRET, "HS256")})
    assert answer.status == 200, answer
    cookie = answer.headers["set-cookie"].partition(";")[0]
    return {"Cookie": cookie, "X-CSRF-Token": answer.json["csrfToken"]}


def status(server: ServerProcess, headers: dict[str, str]) -> int:
    answer: Answer = server.get("/api/v1/status", headers=headers)
    return answer.status


def until_signed_out(server: ServerProcess, headers: dict[str, str]) -> None:
    deadline = time.monotonic() + 30
    while status(server, headers) != 401:
        assert time.monotonic() < deadline, "still signed in"
        time.sleep(0.05)


def test_the_key_is_in_a_private_file_and_stays(start_server: StartServer, tmp_path: Path) -> None:
    server = start_server(auth=True, jwt_secret=SECRET)
    file = tmp_path / "data" / "session-key"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    page = sign_in(server)
    assert status(server, page) == 200
    key = file.read_text()
    server.stop()
    assert key not in server.log_text
    server.start()
    assert file.read_text() == key
    assert status(server, page) == 200


@pytest.mark.parametrize("served_store", ["sqlite"], indirect=True)
def test_nobody_signs_in_by_what_the_database_holds(
    start_server: StartServer, tmp_path: Path
) -> None:
    server = start_server(auth=True, jwt_secret=SECRET)
    page = sign_in(server)
    body, _, signature = page["Cookie"].partition("=")[2].partition(".")
    with sqlite3.connect(tmp_path / "monarq.db") as db:
        kept = dict(db.execute("select key, value from settings").fetchall())
    for text in (*kept, *kept.values()):
        for key in (text.encode(), hashlib.sha256(f"monarq session {text}".encode()).digest()):
            made = hmac.digest(key, b"session:" + body.encode(), "sha256")
            assert base64.urlsafe_b64encode(made).rstrip(b"=").decode() != signature, text


def test_brokers_share_sessions_by_the_setting(start_server: StartServer, tmp_path: Path) -> None:
    shared: dict[str, Any] = {"auth": True, "jwt_secret": SECRET, "session_key": "k" * 32}
    one = start_server(**shared)
    two = start_server(**shared, data_dir=str(tmp_path / "two"))
    page = sign_in(one)
    assert status(two, page) == 200
    assert one.request("DELETE", SESSION, headers=page).status == 200
    assert status(one, page) == 401
    until_signed_out(two, page)
    assert not (tmp_path / "two" / "session-key").exists()
    assert OTHER not in two.log_text


def test_a_broker_with_another_key_warns(start_server: StartServer, tmp_path: Path) -> None:
    one = start_server(auth=True, jwt_secret=SECRET)
    page = sign_in(one)
    two = start_server(auth=True, jwt_secret=SECRET, data_dir=str(tmp_path / "two"))
    two.wait_for_log(OTHER)
    assert OTHER not in one.log_text
    assert status(two, page) == 401


async def test_the_store_gets_the_fingerprint_of_the_key_alone(tmp_path: Path) -> None:
    async with await open_store(f"sqlite:///{tmp_path / 'a.db'}") as store:
        await settle(lambda: store, "key")
        assert await store.get_settings() == {FINGERPRINT: fingerprint("key")}


def test_a_key_that_others_could_read_is_replaced(tmp_path: Path) -> None:
    settings = Settings(data_dir=str(tmp_path))
    first = session_key(settings)
    assert session_key(settings) == first
    (tmp_path / "session-key").chmod(0o644)
    second = session_key(settings)
    assert second != first
    assert stat.S_IMODE((tmp_path / "session-key").stat().st_mode) == 0o600


def test_without_a_place_for_it_the_key_is_for_this_start_alone(tmp_path: Path) -> None:
    (tmp_path / "session-key").mkdir()
    settings = Settings(data_dir=str(tmp_path))
    assert session_key(settings) != session_key(settings)


def test_a_short_key_is_refused() -> None:
    problems = list(contradictions(Settings(session_key="k" * 31)))
    assert problems == [("session_key", "must be at least 32 bytes long")]
    assert not list(contradictions(Settings(session_key="k" * 32)))
