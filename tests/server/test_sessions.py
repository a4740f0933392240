"""Signing in: a cookie in place of the token, good for its bearer alone and for a while."""

import asyncio
import base64
import contextlib
import copy
import json
from collections.abc import AsyncIterator
from http.cookies import SimpleCookie
from pathlib import Path
from typing import Any

import jwt
import msgspec
import pytest

from monarq.api_keys import create_key, revoke_key
from monarq.clock import SECOND, ManualClock
from monarq.config import Settings
from monarq.server.app import Application
from monarq.server.auth import Authenticator
from monarq.server.exchange import RequestHead, StreamingResponse
from monarq.server.routes import ROUTES
from monarq.server.sessions import COOKIE, ENDED, SECURE_COOKIE, Sessions
from tests.server.application import BOUND, JSON_TYPE, Answered, Api, answered, dumps, running_api

SECRET = "a secret of thirty-two bytes or more"
KEY = "the key that all brokers of the store share"
SESSION = "/api/v1/session"
PUSH = "/api/v1/push"
ONE = {"items": [{"queue": "q", "payload": 1}]}


class Browser:
    """Keeps cookies as a browser does."""

    def __init__(self, app: Application, clock: ManualClock) -> None:
        self.app = app
        self.clock = clock
        self.cookie: str | None = None
        self.cookie_name = COOKIE
        self.attributes = ""
        self.csrf: str | None = None

    async def call(
        self, method: str, target: str, body: Any = None, *, csrf: bool = True, **headers: str
    ) -> Answered:
        sent = {**JSON_TYPE, "host": "broker:6632"}
        sent |= {name.replace("_", "-"): value for name, value in headers.items()}
        if self.cookie is not None:
            sent["cookie"] = f"other=1; {self.cookie_name}={self.cookie}"
        if csrf and self.csrf is not None:
            sent["x-csrf-token"] = self.csrf
        head = RequestHead(method, target, sent)
        answer = await answered(self.app.handle(head, b"" if body is None else dumps(body)))
        if "Set-Cookie" in answer.headers:
            self.attributes = answer.headers["Set-Cookie"]
            jar = SimpleCookie(self.attributes)
            [self.cookie_name] = jar
            self.cookie = jar[self.cookie_name].value or None
        return answer

    async def sign_in(self, token: str, **headers: str) -> Any:
        answer = await self.call("POST", SESSION, {"token": token}, **headers)
        assert answer.status == 200, answer
        self.csrf = answer.json["csrfToken"]
        return answer.json

    def token(self, role: str = "write", seconds: int = 600) -> str:
        claims = {"sub": "ann", "role": role, "exp": self.clock.now() // SECOND + seconds}
        return jwt.encode(claims, SECRET, "HS256")


@contextlib.asynccontextmanager
async def guarded(api: Api, key: str = KEY, **settings: Any) -> AsyncIterator[Browser]:
    """A browser before a process that asks who calls, on the store of `api`."""
    chosen = Settings(auth=True, jwt_secret=SECRET, jwt_leeway_seconds=0, **settings)
    authenticator = Authenticator(chosen, clock=api.clock)
    await authenticator.start()
    sessions = Sessions(
        authenticator, key, lambda: api.broker.store, api.clock, lambda: api.clock.now() / SECOND
    )
    service = copy.copy(api.service)
    service.sessions = sessions
    try:
        yield Browser(Application(service, ROUTES, authenticate=sessions.authenticate), api.clock)
    finally:
        await authenticator.close()


def unguarded(api: Api, **settings: Any) -> Application:
    """A process that asks nobody, on the store of `api`."""
    api.service.settings = msgspec.structs.replace(api.service.settings, **settings)
    return Application(api.service, ROUTES)


async def test_a_token_is_exchanged_for_a_cookie_that_no_script_can_read(api: Api) -> None:
    async with guarded(api) as browser:
        assert (await browser.call("POST", PUSH, ONE)).status == 401
        nobody = (await browser.call("GET", SESSION)).json
        assert nobody == {
            "auth": True, "signedIn": False, "subject": None, "role": None, "roles": [],
            "csrfToken": None, "expiresAt": None, "version": None, "store": None,
        }  # fmt: skip
        told = await browser.sign_in(browser.token())
        assert (told["subject"], told["role"], told["roles"]) == ("ann", "write", ["read", "write"])
        for attribute in ("HttpOnly", "SameSite=Strict", "Path=/", "Max-Age=600"):
            assert attribute in browser.attributes
        assert "Secure" not in browser.attributes
        assert (await browser.call("POST", PUSH, ONE)).status == 201
        assert (await browser.call("GET", SESSION)).json == told
        assert (await browser.call("GET", "/api/v1/dashboard/settings")).status == 403
        assert (await browser.call("DELETE", SESSION)).json["signedIn"] is False
        assert browser.cookie is None
        assert (await browser.call("POST", PUSH, ONE)).status == 401


async def test_a_session_pushes_in_the_name_of_its_subject(api: Api) -> None:
    async with guarded(api) as browser:
        await browser.sign_in(browser.token())
        await browser.call("POST", PUSH, ONE)
        rows = (await browser.call("GET", "/api/v1/messages?queue=q")).json["messages"]
        assert rows[0]["producerSub"] == "ann"


async def test_over_tls_the_cookie_is_for_tls_alone(memory_api: Api) -> None:
    async with guarded(memory_api) as browser:
        tls = {"x_forwarded_proto": "https"}
        await browser.sign_in(browser.token(), **tls)
        assert "Secure" in browser.attributes
        assert "Path=/;" in browser.attributes
        assert "Domain" not in browser.attributes
        assert browser.cookie_name == SECURE_COOKIE == "__Host-monarq_session"
        assert (await browser.call("GET", SESSION, **tls)).json["signedIn"]
        assert (await browser.call("POST", PUSH, ONE, **tls)).status == 201
        # Another service on the host, without TLS, can set a cookie of the plain name only.
        browser.cookie_name = COOKIE
        assert (await browser.call("POST", PUSH, ONE, **tls)).status == 401
        assert not (await browser.call("GET", SESSION, **tls)).json["signedIn"]
        browser.cookie_name = SECURE_COOKIE
        await browser.call("DELETE", SESSION, **tls)
        assert (browser.cookie, browser.cookie_name) == (None, SECURE_COOKIE)


async def test_what_changes_something_needs_the_token_that_only_our_page_knows(api: Api) -> None:
    async with guarded(api) as browser:
        await browser.sign_in(browser.token("admin"))
        assert (await browser.call("POST", PUSH, ONE)).status == 201
        refused = await browser.call("POST", PUSH, ONE, csrf=False)
        assert (refused.status, refused.code) == (403, "csrf")
        for method, target in (
            ("DELETE", "/api/v1/resources/queues/q"),
            ("POST", "/api/v1/resources/queues/q/clear"),
            ("GET", "/api/v1/pop/queue/q"),
            ("DELETE", SESSION),
        ):
            for token in ("", "x" * 43, "ü"):
                answer = await browser.call(method, target, csrf=False, x_csrf_token=token)
                assert (answer.status, answer.code) == (403, "csrf"), (method, target)
        assert (await browser.call("GET", "/api/v1/messages?queue=q", csrf=False)).status == 200
        other = Browser(browser.app, browser.clock)
        await other.sign_in(other.token())
        browser.csrf = other.csrf
        assert (await browser.call("POST", PUSH, ONE)).code == "csrf"


@pytest.mark.parametrize("is_guarded", [True, False])
async def test_calls_that_another_site_made_the_browser_send_are_refused(
    memory_api: Api, is_guarded: bool
) -> None:
    async with guarded(memory_api) as browser:
        if is_guarded:
            await browser.sign_in(browser.token())
        else:
            browser.app = unguarded(memory_api, insecure=True)
        foreign = (
            {"origin": "http://evil.example"},
            {"origin": "null"},
            {"origin": "http://[bad"},
            {"origin": "http://broker:9999"},
            {"sec_fetch_site": "cross-site"},
            {"sec_fetch_site": "same-site", "origin": "http://broker:6632"},
        )
        for headers in foreign:
            answer = await browser.call("POST", PUSH, ONE, **headers)
            assert (answer.status, answer.code) == (403, "foreign_origin"), headers
            assert (await browser.call("GET", "/api/v1/pop/queue/q", **headers)).status == 403
        own = (
            {"origin": "http://broker:6632"},
            {"sec_fetch_site": "same-origin", "origin": "https://proxy.example"},
            {"sec_fetch_site": "none"},
            {"origin": "https://proxy.example", "x_forwarded_host": "proxy.example"},
        )
        for headers in own:
            assert (await browser.call("POST", PUSH, ONE, **headers)).status == 201, headers


async def test_another_site_cannot_sign_anybody_in_or_out(memory_api: Api) -> None:
    async with guarded(memory_api) as browser:
        token = browser.token()
        for method, body in (("POST", {"token": token}), ("DELETE", None)):
            answer = await browser.call(method, SESSION, body, origin="http://evil.example")
            assert (answer.status, answer.code) == (403, "foreign_origin")
            assert browser.cookie is None


async def test_a_session_ends_with_its_token_and_after_half_a_day(memory_api: Api) -> None:
    async with guarded(memory_api) as browser:
        await browser.sign_in(browser.token(seconds=600))
        browser.clock.advance(599)
        assert (await browser.call("POST", PUSH, ONE)).status == 201
        browser.clock.advance(2)
        assert (await browser.call("POST", PUSH, ONE)).status == 401
        assert (await browser.call("GET", SESSION)).json["signedIn"] is False
        await browser.sign_in(browser.token(seconds=10**6))
        browser.clock.advance(12 * 3600 - 1)
        assert (await browser.call("POST", PUSH, ONE)).status == 201
        browser.clock.advance(2)
        assert (await browser.call("POST", PUSH, ONE)).status == 401


async def test_a_session_of_an_api_key_ends_when_the_key_is_revoked(
    memory_api: Api, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("monarq.server.auth.LOOK_AGAIN_SECONDS", 0.0)
    path = tmp_path / "keys.json"
    secret, key = create_key(path, name="desk", role="write", now=0)
    create_key(path, name="other", role="write", now=0)
    async with guarded(memory_api, api_keys=str(path)) as browser:
        told = await browser.sign_in(secret)
        assert told["subject"] == "desk"
        assert (await browser.call("POST", PUSH, ONE)).status == 201
        revoke_key(path, key.id)
        browser.clock.advance(2)
        assert (await browser.call("POST", PUSH, ONE)).status == 401


@pytest.mark.parametrize("by_cookie", [True, False])
async def test_a_stream_of_events_ends_with_the_token(
    memory_api: Api, by_cookie: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("monarq.server.watch.streams.TICK_SECONDS", 0.01)
    async with guarded(memory_api) as browser, asyncio.timeout(BOUND):
        headers = {"authorization": f"Bearer {browser.token(seconds=600)}"}
        if by_cookie:
            await browser.sign_in(browser.token(seconds=600))
            headers = {"cookie": f"{COOKIE}={browser.cookie}"}
        opened = browser.app.handle(
            RequestHead("GET", "/api/v1/events?topics=workers", headers), b""
        )
        answer = opened if isinstance(opened, StreamingResponse) else await opened  # type: ignore[misc]
        async with contextlib.aclosing(answer.chunks) as chunks:
            while b"event: tick" not in await anext(chunks):
                pass
            browser.clock.advance(601)
            assert [chunk async for chunk in chunks] == [b"event: bye\ndata: {}\n\n"]
        assert memory_api.service.streams.open == 0


async def test_no_cookie_but_our_own_is_good(memory_api: Api) -> None:
    async with guarded(memory_api) as browser:
        await browser.sign_in(browser.token("read"))
        good = browser.cookie
        assert good is not None
        body, _, signature = good.partition(".")
        claims = json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))
        raised = [claims[0], "admin", *claims[2:]]
        forged = base64.urlsafe_b64encode(json.dumps(raised).encode()).rstrip(b"=").decode()
        for cookie in (
            f"{forged}.{signature}", f"{body}.", f"{body}.{signature[:-1]}", body, ".", "x.y", "..",
            f"{body}.{signature}x", f"{signature}.{body}",
        ):  # fmt: skip
            browser.cookie = cookie
            browser.clock.advance(2)
            assert (await browser.call("GET", "/api/v1/status")).status == 401, cookie
        browser.cookie = good
        assert (await browser.call("GET", "/api/v1/status")).status == 200


async def test_a_forged_cookie_is_refused_without_a_look_at_the_store(
    memory_api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with guarded(memory_api) as browser:
        read: list[None] = []
        get_settings = memory_api.broker.store.get_settings

        async def counted() -> dict[str, str]:
            read.append(None)
            return await get_settings()

        monkeypatch.setattr(memory_api.broker.store, "get_settings", counted)
        browser.cookie = "forged.cookie"
        assert (await browser.call("GET", "/api/v1/status")).status == 401
        assert not read
        await browser.sign_in(browser.token())
        assert (await browser.call("GET", "/api/v1/status")).status == 200
        assert read


async def test_a_cookie_does_not_hold_the_token_and_the_secret_is_never_shown(api: Api) -> None:
    async with guarded(api) as browser:
        token = browser.token("admin")
        await browser.sign_in(token)
        assert browser.cookie is not None
        assert token.rpartition(".")[2] not in browser.cookie
        for route in ROUTES:
            if route.method == "GET" and "{" not in route.path and route.query is None:
                answer = await browser.call("GET", route.path)
                assert KEY.encode() not in answer.body, route.path
        kept = await api.broker.store.get_settings()
        assert KEY not in str(kept)


async def test_brokers_with_the_same_key_know_each_others_sessions(api: Api) -> None:
    async with guarded(api) as one, guarded(api) as two, guarded(api, "another key") as three:
        await one.sign_in(one.token())
        for browser, status in ((two, 201), (three, 401)):
            browser.cookie, browser.csrf = one.cookie, one.csrf
            assert (await browser.call("POST", PUSH, ONE)).status == status


@pytest.mark.parametrize("by_key", [True, False])
async def test_a_session_that_was_signed_out_of_is_over_on_every_broker(
    api: Api, by_key: bool, tmp_path: Path
) -> None:
    path = tmp_path / "keys.json"
    secret, _ = create_key(path, name="desk", role="admin", now=0)
    async with guarded(api, api_keys=str(path)) as one, guarded(api, api_keys=str(path)) as two:
        credential = secret if by_key else one.token("admin")
        await one.sign_in(credential)
        await two.sign_in(credential)
        copied, stays = (one.cookie, one.csrf), (two.cookie, two.csrf)
        thief = Browser(two.app, two.clock)
        for browser in (one, thief):
            browser.cookie, browser.csrf = copied
            assert (await browser.call("POST", PUSH, ONE)).status == 201
        assert (await one.call("DELETE", SESSION)).json["signedIn"] is False
        one.cookie, one.csrf = copied
        assert (await one.call("POST", PUSH, ONE)).status == 401
        assert (await one.call("GET", "/api/v1/status")).status == 401
        assert (await one.call("GET", SESSION)).json["signedIn"] is False
        # The other broker looks at most once a second.
        api.clock.advance(1)
        assert (await thief.call("POST", PUSH, ONE)).status == 401
        assert (await thief.call("GET", SESSION)).json["signedIn"] is False
        # The same person's other session goes on.
        two.cookie, two.csrf = stays
        assert (await two.call("POST", PUSH, ONE)).status == 201
    async with guarded(api, api_keys=str(path)) as started_later:
        started_later.cookie, started_later.csrf = copied
        assert (await started_later.call("POST", PUSH, ONE)).status == 401


async def test_an_ended_session_is_forgotten_when_its_time_is_over(api: Api) -> None:
    async def ended() -> list[str]:
        found = await api.broker.store.get_settings()
        return [key for key in found if key.startswith(ENDED)]

    async with guarded(api) as browser:
        for seconds in (600, 6000):
            await browser.sign_in(browser.token(seconds=seconds))
            await browser.call("DELETE", SESSION)
        assert len(await ended()) == 2
        api.clock.advance(601)
        await browser.sign_in(browser.token())
        await browser.call("DELETE", SESSION)
        assert len(await ended()) == 2


@pytest.mark.parametrize("token", ["x", "a.b.c", "mq_00_00", " ", "ü" * 10, "Bearer x"])
async def test_bad_tokens_sign_nobody_in(memory_api: Api, token: str) -> None:
    async with guarded(memory_api) as browser:
        answer = await browser.call("POST", SESSION, {"token": token})
        assert answer.status == 401, answer
        assert answer.error
        assert browser.cookie is None


async def test_a_token_in_the_header_needs_no_csrf_token(memory_api: Api) -> None:
    async with guarded(memory_api) as browser:
        headers = {"authorization": f"Bearer {browser.token()}"}
        assert (await browser.call("POST", PUSH, ONE, **headers)).status == 201
        await browser.sign_in(browser.token("read"))
        # It holds even beside a cookie that allows less.
        assert (await browser.call("POST", PUSH, ONE, csrf=False, **headers)).status == 201


async def test_where_nobody_is_asked_only_this_machine_s_own_names_are_answered(
    memory_api: Api,
) -> None:
    browser = Browser(unguarded(memory_api), memory_api.clock)
    own = (
        "localhost",
        "LocalHost:6632",
        "app.localhost:1",
        "127.0.0.1:6632",
        "127.8.8.8",
        "[::1]:80",
    )
    foreign = (
        "evil.example", "evil.example:6632", "localhost.evil.example", "notlocalhost", "10.0.0.1",
        "127.0.0.1.evil.example", "127.0.0.1\n", "[::2]:80", "",
    )  # fmt: skip
    for _ in range(2):
        for host in own:
            assert (await browser.call("POST", PUSH, ONE, host=host)).status == 201, host
        for host in foreign:
            for method, target in (
                ("POST", PUSH),
                ("GET", "/api/v1/resources/queues"),
                ("GET", "/"),
            ):
                sent = {"host": host, "x_forwarded_host": "localhost", "origin": f"http://{host}"}
                answer = await browser.call(method, target, ONE, **sent)
                assert (answer.status, answer.code) == (403, "foreign_host"), host
    # HTTP/1.0 knows no such header.
    answer = await answered(browser.app.handle(RequestHead("GET", "/health", {}), b""))
    assert answer.status == 200
    browser.app = unguarded(memory_api, insecure=True)
    assert (await browser.call("POST", PUSH, ONE, host="evil.example")).status == 201


async def test_where_nobody_is_asked_everybody_is_an_admin() -> None:
    async with running_api("memory:") as api:
        browser = Browser(unguarded(api, insecure=True), api.clock)
        told = (await browser.call("GET", SESSION)).json
        assert (told["auth"], told["signedIn"], told["role"]) == (False, True, "admin")
        assert told["csrfToken"] is None
        assert (await browser.call("POST", SESSION, {"token": "x"})).status == 400
        assert (await browser.call("DELETE", SESSION)).json["signedIn"] is True
