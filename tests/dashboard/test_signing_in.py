"""Who does not sign in sees nothing; who does, no more than their role allows."""

import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jwt
import pytest
from playwright.sync_api import Browser, Response, expect

from monarq.api_keys import create_key
from tests.dashboard.browsing import Board, boarding
from tests.dashboard.places import EVERYWHERE
from tests.dashboard.seeding import STUCK_GROUP, STUCK_QUEUE, calling, seed
from tests.server.serving import ServerProcess

pytestmark = pytest.mark.slow

SECRET = "a secret of thirty-two bytes or more"
ACTIONS = re.compile(
    r"^(Push|Pause|Resume|Clear|Delete|Save|Seek|Skip|Redrive|Purge|New queue|Enqueue|Cancel|"
    r"Retry|Try again now|Switch|Stop)"
)
#: What the seeded broker holds and nobody may learn without a token.
SECRETS = ("orders", "billing", "customer-17", "payments", "4711", "0.1.0", "sqlite")


def token(role: str, **more: Any) -> str:
    claims = {"sub": f"the {role}", "role": role, "exp": int(time.time()) + 600} | more
    return jwt.encode(claims, SECRET, "HS256")


@pytest.fixture
def guarded(fresh: Callable[..., ServerProcess], tmp_path: Path) -> ServerProcess:
    keys = tmp_path / "keys.json"
    create_key(keys, name="unused", role="read", now=0)
    server = fresh(auth=True, jwt_secret=SECRET, api_keys=str(keys))
    with calling(server, {"Authorization": f"Bearer {token('admin')}"}) as caller:
        seed(caller)
    return server


@pytest.fixture
def board(browser: Browser, guarded: ServerProcess) -> Iterator[Board]:
    with boarding(browser, guarded) as opened:
        yield opened


def sign_in(board: Board, role: str) -> None:
    board.page.goto(f"{board.server.url}/")
    board.page.get_by_label("API key or token").fill(token(role))
    board.page.get_by_role("button", name="Sign in").click()
    board.wait()


def test_without_a_token_nothing_leaks(board: Board) -> None:
    answers: list[Response] = []
    board.page.on("response", lambda answer: answers.append(answer))
    for place, _ in EVERYWHERE.values():
        board.page.goto(f"{board.server.url}/{place}")
        expect(board.page.get_by_label("API key or token")).to_be_visible()
    board.page.get_by_label("API key or token").fill("wrong")
    board.page.get_by_role("button", name="Sign in").click()
    expect(board.page.get_by_role("alert")).to_be_visible()
    assert board.context.cookies() == []
    told = [answer for answer in answers if "/api/" in answer.url]
    assert told
    for answer in told:
        text = answer.text()
        assert not [secret for secret in SECRETS if secret in text], answer.url
    body = board.page.content()
    assert not [secret for secret in SECRETS if secret in body]
    assert all("401" in complaint for complaint in board.complaints), board.complaints


def test_the_token_stays_out_of_reach_of_scripts_and_addresses(board: Board) -> None:
    asked: list[str] = []
    board.page.on("request", lambda request: asked.append(request.url))
    sign_in(board, "admin")
    [cookie] = board.context.cookies()
    assert (cookie["httpOnly"], cookie["sameSite"], cookie["path"]) == (True, "Strict", "/")
    assert board.page.evaluate("document.cookie") == ""
    kept = board.page.evaluate("JSON.stringify([{...localStorage}, {...sessionStorage}])")
    signature = token("admin").split(".")[0]
    assert signature not in kept
    assert not [url for url in asked if signature in url]
    # It holds over a reload, in another tab, and until signing out.
    board.page.reload()
    board.wait()
    board.expect_live()
    board.page.get_by_role("button", name=re.compile("Sign out")).click()
    expect(board.page.get_by_label("API key or token")).to_be_visible()
    assert board.context.cookies() == []
    board.check()


def test_a_reader_sees_everything_and_no_button_that_changes_anything(board: Board) -> None:
    sign_in(board, "read")
    for name, (place, _) in EVERYWHERE.items():
        if name == "settings":
            continue
        board.open(place)
        buttons = board.main.get_by_role("button").all_inner_texts()
        assert not [text for text in buttons if ACTIONS.match(text)], name
    board.open(f"#/groups/{STUCK_GROUP}/{STUCK_QUEUE}")
    expect(board.main).to_contain_text("ValueError")
    board.check()
    # Also if a button were there, it would not work.
    status, code = board.page.evaluate(
        """async () => {
          const session = await (await fetch("/api/v1/session")).json();
          const answer = await fetch("/api/v1/resources/queues/orders",
            {method: "DELETE", headers: {"X-CSRF-Token": session.csrfToken}});
          return [answer.status, (await answer.json()).code];
        }"""
    )
    assert (status, code) == (403, "forbidden")


def test_a_writer_pushes_in_their_own_name_and_may_not_delete(board: Board) -> None:
    sign_in(board, "write")
    board.open("#/queues/mails")
    expect(board.button("Delete")).to_have_count(0)
    board.button("Push").click()
    board.confirm("Push", payload='"by hand"', transactionId="mine")
    board.expect_notice("Pushed")
    with calling(board.server, {"Authorization": f"Bearer {token('read')}"}) as api:
        [found] = api.get("/api/v1/dashboard/find?queue=mails&transactionId=mine")["found"]
        row = api.get(f"/api/v1/messages/{found['partitionId']}/mine")
    assert row["producerSub"] == "the write"
    board.check()


def test_calls_without_the_page_s_own_token_are_refused(board: Board) -> None:
    sign_in(board, "admin")
    statuses = board.page.evaluate(
        """async () => {
          const call = (headers) => fetch("/api/v1/resources/queues/mails/pause",
            {method: "POST", headers}).then((answer) => answer.status);
          const session = await (await fetch("/api/v1/session")).json();
          return [await call({}), await call({"X-CSRF-Token": "guess"}),
            await call({"X-CSRF-Token": session.csrfToken})];
        }"""
    )
    assert statuses == [403, 403, 200]


def test_a_session_that_ends_asks_to_sign_in_again(board: Board) -> None:
    sign_in(board, "admin")
    board.expect_live()
    board.context.clear_cookies()
    board.page.evaluate("location.hash = '#/queues'")
    expect(board.page.get_by_label("API key or token")).to_be_visible()
