"""Without authentication only the broker's own user runs commands, and proves to be it."""

import contextlib
import json
import os
import re
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from monarq import Client, local_token
from monarq.clock import SECOND, ManualClock
from monarq.config import Settings
from monarq.errors import SettingsError, UnauthorizedError
from monarq.local_token import HEADER
from monarq.model import Push, PushItem
from monarq.server.greeting import greet
from monarq.server.local_callers import ANYBODY, COOKIE, OWNER, LocalCallers
from monarq.server.sessions import LONGEST_SECONDS
from tests.server.serving import Answer, ServerProcess

QUEUE = {"queue": "commands", "kind": "work", "options": {"runsCommands": True}}
JOB = {"items": [{"queue": "commands", "payload": {"command": "true"}}]}
SESSION = "/api/v1/session"
NOBODY = 65534


@pytest.fixture
def data_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The broker's user's own data directory."""
    path = tmp_path / "home" / "share"
    monkeypatch.setenv("XDG_DATA_HOME", str(path))
    return path


@pytest.fixture
def file(data_home: Path) -> Path:
    return data_home / "monarq" / "local-token"


@pytest.fixture
def server(data_home: Path, tmp_path: Path) -> Iterator[ServerProcess]:
    settings = {"store": f"sqlite:///{tmp_path / 'a.db'}", "data_dir": str(tmp_path / "elsewhere")}
    with ServerProcess(settings) as process:
        yield process


def ask(server: ServerProcess, method: str, path: str, body: Any = None, **headers: str) -> Answer:
    """A call as of another program: without the token, unless it is among the headers."""
    sent = {"X-CSRF-Token": "", **{name.replace("_", "-"): text for name, text in headers.items()}}
    if HEADER not in sent:
        sent[HEADER] = ""
    return server.request(method, path, body, headers=sent)


def test_anybody_may_push_and_pop_but_not_run_commands(server: ServerProcess, file: Path) -> None:
    pushed = ask(server, "POST", "/api/v1/push", {"items": [{"queue": "q", "payload": 1}]})
    assert pushed.status == 201
    assert ask(server, "GET", "/api/v1/pop/queue/q?autoAck=true").status == 200
    assert ask(server, "POST", "/api/v1/configure", {"queue": "w", "kind": "work"}).status == 200
    assert server.post("/api/v1/configure", QUEUE).status == 200
    plain = {"queue": "p", "options": {"runsCommands": False}}
    assert ask(server, "POST", "/api/v1/configure", plain).status == 200
    for method, path in (
        ("DELETE", "/api/v1/resources/queues/commands"),
        ("POST", "/api/v1/resources/queues/commands/pause"),
        ("POST", "/api/v1/resources/queues/commands/clear"),
    ):
        answer = ask(server, method, path)
        assert (answer.status, answer.json["code"]) == (403, "forbidden"), answer
        assert HEADER in answer.json["error"]
    refused = [
        ask(server, "POST", "/api/v1/configure", QUEUE | {"queue": "other"}),
        ask(server, "POST", "/api/v1/jobs", JOB),
        ask(server, "PUT", "/api/v1/records/worker-stop/w1", {"value": {}}),
        ask(server, "POST", "/api/v1/dashboard/workers/w1/stop"),
    ]
    for answer in refused:
        assert (answer.status, answer.json["code"]) == (403, "forbidden"), answer
        assert str(file) in answer.json["error"]
        assert HEADER in answer.json["error"]
    assert ask(server, "GET", "/api/v1/resources/queues/other").status == 404
    assert server.get("/api/v1/items?queue=commands").json["items"] == []


def test_the_token_lets_run_commands_in_either_header(server: ServerProcess, file: Path) -> None:
    token = file.read_text()
    assert server.post("/api/v1/configure", QUEUE).status == 200
    for headers in ({HEADER: token}, {"Authorization": f"Bearer {token}"}):
        assert server.request("POST", "/api/v1/jobs", JOB, headers=headers).status == 201
    entered = ask(server, "POST", SESSION, {"token": token})
    assert "jobs" in entered.json["roles"], "the token does as the code of a link"
    wrong = token[:-1] + ("A" if token[-1] != "A" else "B")
    for text in (wrong, token + "A", token[:-1], "", "ü", "*"):
        assert ask(server, "POST", "/api/v1/jobs", JOB, **{HEADER: text}).status == 403, text
        bearer = {HEADER: "", "Authorization": f"Bearer {text}"}
        assert server.request("POST", "/api/v1/jobs", JOB, headers=bearer).status == 403, text
        pushed = {"items": [{"queue": "q", "payload": 1}]}
        assert ask(server, "POST", "/api/v1/push", pushed, **{HEADER: text}).status == 201
    server.stop()
    assert token not in server.log_text
    assert wrong not in server.log_text


def test_the_file_is_for_its_user_alone_and_stays(server: ServerProcess, file: Path) -> None:
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    token = file.read_text()
    server.stop()
    server.start()
    assert file.read_text() == token


def test_a_token_that_others_could_read_is_replaced(server: ServerProcess, file: Path) -> None:
    old = file.read_text()
    assert server.post("/api/v1/configure", QUEUE).status == 200
    file.chmod(0o644)
    local_token.make_token()
    new = file.read_text()
    assert new != old
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    # The broker that runs reads the new one.
    assert ask(server, "POST", "/api/v1/jobs", JOB, **{HEADER: new}).status == 201
    assert ask(server, "POST", "/api/v1/jobs", JOB, **{HEADER: old}).status == 403


@pytest.mark.parametrize("place", ["/proc/no-such-directory", "/dev/null"])
def test_without_a_place_for_the_token_nobody_runs_commands(place: str, tmp_path: Path) -> None:
    settings = {"store": f"sqlite:///{tmp_path / 'a.db'}", "data_dir": str(tmp_path / "data")}
    environment = {"XDG_DATA_HOME": place, "HOME": place}
    with ServerProcess(settings, environment=environment) as server:
        assert server.post("/api/v1/push", {"items": [{"queue": "q", "payload": 1}]}).status == 201
        assert server.post("/api/v1/jobs", JOB).status == 403
        assert "nobody can run commands over HTTP" in server.log_text


CHILD = """
import json, os, sys
import httpx
from monarq import Client
from monarq.errors import ForbiddenError, MonarqError
from monarq.model import Push, PushItem

url, file, home, uid = sys.argv[1:]
os.environ["XDG_DATA_HOME"] = home
said = {}
push = Push([PushItem("commands", b'{"command":"id"}')], commands=True)
with Client(url) as mq:
    if os.geteuid() == 0:
        # The libraries are loaded by now, which that user may not be allowed to read.
        os.setgroups([])
        os.setgid(int(uid))
        os.setuid(int(uid))
    mq.queue("theirs").push(1)
    said["popped"] = mq.queue("theirs").pop(auto_ack=True)[0].payload
    for name, act in {
        "enqueue": lambda: mq.push(push),
        "configure": lambda: mq.queue("pwnq").configure(kind="work", runs_commands=True),
    }.items():
        try:
            act()
            said[name] = "done"
        except MonarqError as error:
            said[name] = f"{type(error).__name__}: {error}"
try:
    said["file"] = open(file).read()
except OSError as error:
    said["file"] = type(error).__name__
print(json.dumps(said))
"""


def test_another_user_of_the_machine_runs_no_command(
    server: ServerProcess, file: Path, tmp_path: Path
) -> None:
    assert server.post("/api/v1/configure", QUEUE).status == 200
    home = tmp_path / "home of nobody"
    home.mkdir()
    if os.geteuid() == 0:
        os.chown(home, NOBODY, NOBODY)
    # That user has a token, too, which proves nothing here.
    (home / "monarq").mkdir()
    (home / "monarq" / "local-token").write_text("x" * 43)
    arguments = [server.url, str(file), str(home), str(NOBODY)]
    child = subprocess.run(
        [sys.executable, "-c", CHILD, *arguments], capture_output=True, text=True, check=False
    )
    assert child.returncode == 0, child.stderr
    said = json.loads(child.stdout)
    assert said["popped"] == 1
    for name in ("enqueue", "configure"):
        assert said[name].startswith("ForbiddenError: "), said
        assert str(file) in said[name]
    if os.geteuid() == 0:
        assert said["file"] == "PermissionError"
    assert server.get("/api/v1/items?queue=commands").json["items"] == []


def test_the_client_of_the_same_user_needs_no_set_up(server: ServerProcess) -> None:
    with Client(server.url) as mq:
        mq.queue("commands").configure(kind="work", runs_commands=True)
        mq.push(Push([PushItem("commands", b'{"command":"true"}')], commands=True))
        [item] = mq.admin.list_items("commands", order="next").rows
        assert item.state == "ready"


# --- the dashboard -------------------------------------------------------------------------------


def link_code(server: subprocess.Popen[str]) -> tuple[str, str]:
    """The address and the code of the link that `monarq serve` prints."""
    assert server.stdout is not None
    for line in server.stdout:
        found = re.search(r"dashboard +(http://\S+)/#local=(\S+)$", line)
        if found:
            return found[1], found[2]
    raise AssertionError("no link")


def test_the_printed_link_lets_the_page_run_commands(data_home: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "monarq", "serve", "--log-format", "text", "--port", "0"]
    with subprocess.Popen(
        [*command, "--data-dir", str(tmp_path / "data")],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        try:
            url, code = link_code(process)
            other = ServerProcess()
            other.host, other.port = (
                url.removeprefix("http://").split(":")[0],
                int(url.rpartition(":")[2]),
            )
            page = ask(other, "GET", SESSION).json
            assert (page["auth"], page["role"]) == (False, "admin")
            assert page["roles"] == ["read", "write", "admin"]
            assert ask(other, "POST", SESSION, {"token": code[:-1]}).status == 401
            entered = ask(other, "POST", SESSION, {"token": code})
            assert entered.json["roles"] == ["read", "write", "jobs", "admin"]
            cookie, *attributes = entered.headers["set-cookie"].split("; ")
            assert {"HttpOnly", "SameSite=Strict", "Path=/"} <= set(attributes)
            csrf = entered.json["csrfToken"]
        finally:
            process.terminate()
    assert ask_page(LocalCallers.start(None, ManualClock()), cookie, csrf) == OWNER


def ask_page(callers: LocalCallers, cookie: str, csrf: str) -> object:
    return callers.identify({"cookie": f"other=1; {cookie}", "x-csrf-token": csrf})


def callers_at(clock: ManualClock) -> LocalCallers:
    return LocalCallers("t" * 43, "code", clock)


def test_a_cookie_counts_with_its_csrf_token_alone(data_home: Path) -> None:
    clock = ManualClock()
    callers = callers_at(clock)
    session = callers.sign_in("code")
    cookie = f"{COOKIE}={session.cookie}"
    assert ask_page(callers, cookie, session.csrf_token) == OWNER
    assert ask_page(callers, cookie, callers.sign_in("code").csrf_token) == ANYBODY
    assert ask_page(callers, cookie, "") == ANYBODY
    assert callers.identify({"cookie": cookie}) == ANYBODY
    assert callers.identify({"x-csrf-token": session.csrf_token}) == ANYBODY
    # It outlives the broker, but neither its time nor the token.
    assert ask_page(callers_at(clock), cookie, session.csrf_token) == OWNER
    other = LocalCallers("u" * 43, "code", clock)
    assert ask_page(other, cookie, session.csrf_token) == ANYBODY
    clock.advance(LONGEST_SECONDS)
    assert ask_page(callers, cookie, session.csrf_token) == ANYBODY


@pytest.mark.parametrize("cookie", ["", ".", "..", "x.y.z", "1.x.", "9" * 30 + ".n.s"])
def test_a_forged_cookie_proves_nothing(data_home: Path, cookie: str) -> None:
    clock = ManualClock()
    callers = callers_at(clock)
    good = callers.sign_in("code")
    assert ask_page(callers, f"{COOKIE}={cookie}", good.csrf_token) == ANYBODY
    longer = str(good.until + SECOND) + good.cookie[good.cookie.index(".") :]
    assert ask_page(callers, f"{COOKIE}={longer}", good.csrf_token) == ANYBODY


@pytest.mark.parametrize(("mode", "has_code"), [(0o644, False), (0o640, False), (0o600, True)])
def test_a_link_in_a_file_that_others_can_read_has_no_code(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, mode: int, has_code: bool
) -> None:
    printed = tmp_path / "serve.log"
    printed.touch()
    printed.chmod(mode)
    settings = Settings(log_format="text", data_dir=str(tmp_path))
    with printed.open("w") as file, contextlib.redirect_stdout(file):
        greet(settings, 6632, "the-code")
    assert "http://127.0.0.1:6632/" in printed.read_text()
    assert ("the-code" in printed.read_text()) == has_code
    assert ("lets nobody run commands" in caplog.text) != has_code


def test_without_a_token_no_link_lets_anybody_in(data_home: Path) -> None:
    callers = LocalCallers(None, None, ManualClock())
    for code in ("", "None", "code"):
        with pytest.raises(UnauthorizedError, match="link"):
            callers.sign_in(code)
    assert callers.identify({HEADER.lower(): "None"}) == ANYBODY


def test_a_token_file_of_another_user_is_not_trusted(data_home: Path, file: Path) -> None:
    made = local_token.make_token()
    assert local_token.trusted_token() == made
    if os.geteuid() == 0:
        os.chown(file, NOBODY, NOBODY)
        assert local_token.trusted_token() is None
    file.write_text("too short")
    assert local_token.trusted_token() is None
    assert local_token.read_token() is None
    file.unlink()
    file.mkdir()
    with pytest.raises(SettingsError, match="local-token"):
        local_token.make_token()
