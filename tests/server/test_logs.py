"""The log: one line an event, whatever is in it, and nothing that is secret."""

import io
import json
import logging
import warnings
from collections.abc import Iterator

import jwt
import pytest

from monarq.config import Settings
from monarq.server.logs import JsonFormatter, configure
from monarq.server.observing import Observer
from monarq.server.request_metrics import RequestMetrics
from monarq.server.routes import ROUTES
from monarq.server.routing import Route
from tests.server.conftest import StartServer

SECRET = "a secret of thirty-two bytes or more"


@pytest.fixture(autouse=True)
def logging_as_it_was() -> Iterator[None]:
    root, ours = logging.getLogger(), logging.getLogger("monarq")
    before = (list(root.handlers), root.level, ours.level)
    yield
    root.handlers[:], root.level, ours.level = before[0], before[1], before[2]
    logging.captureWarnings(False)


def logged(**settings: str) -> io.StringIO:
    stream = io.StringIO()
    configure(Settings(**settings), stream)  # type: ignore[arg-type]
    return stream


def route(path: str) -> Route:
    return next(route for route in ROUTES if route.path == path)


def test_json_is_one_object_a_line_whatever_is_logged() -> None:
    stream = logged(log_format="json")
    logger = logging.getLogger("monarq.test")
    logger.info("two\nlines", extra={"fields": {"queue": 'a"b\n', "n": 1, "what": object}})
    logger.info("clash", extra={"fields": {"message": "mine", "level": "mine"}})
    try:
        raise ValueError("inner")
    except ValueError:
        logger.exception("outer")
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [line["level"] for line in lines] == ["info", "info", "error"]
    assert lines[0]["message"] == "two\nlines"
    assert (lines[0]["queue"], lines[0]["n"]) == ('a"b\n', 1)
    assert (lines[1]["message"], lines[1]["level"]) == ("clash", "info")
    assert "ValueError: inner" in lines[2]["error"]


def test_text_that_is_no_unicode_is_logged_all_the_same() -> None:
    record = logging.LogRecord("monarq", logging.INFO, "", 0, "lone %s", ("\ud800",), None)
    line = json.loads(JsonFormatter().format(record))
    assert (line["level"], line["message"]) == ("info", "lone \\ud800")


def test_text_cannot_be_forged_by_what_a_caller_chose() -> None:
    stream = logged(log_format="text")
    logging.getLogger("monarq.test").info(
        "queue %s", "a\n12:00:00.000 info forged\x1b[2J", extra={"fields": {"x": "b\rc"}}
    )
    [line] = stream.getvalue().splitlines()
    assert "\x1b" not in line
    assert "\\n12:00:00.000 info forged" in line
    assert line.endswith("x=b\\rc")


def test_auto_is_text_on_a_terminal_and_json_elsewhere() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    terminal = Terminal()
    configure(Settings(), terminal)
    logging.getLogger("monarq.test").warning("hello")
    assert terminal.getvalue().startswith("\x1b[33m")
    plain = logged()
    logging.getLogger("monarq.test").warning("hello")
    assert json.loads(plain.getvalue())["message"] == "hello"
    assert "hello" in terminal.getvalue()
    assert terminal.getvalue().count("hello") == 1  # a second call replaces the first


def test_the_level_holds_for_us_and_others_are_heard_from_warnings_on() -> None:
    stream = logged(log_format="json", log_level="debug")
    logging.getLogger("monarq.test").debug("ours")
    logging.getLogger("somebody.else").info("theirs")
    logging.getLogger("somebody.else").warning("loud")
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        # As the interpreter does; pytest's own hook would take it first.
        logging.captureWarnings(False)
        logging.captureWarnings(True)
        warnings.warn("a warning of Python", UserWarning, stacklevel=1)
        logging.captureWarnings(False)
    messages = [json.loads(line)["message"] for line in stream.getvalue().splitlines()]
    assert messages[:2] == ["ours", "loud"]
    assert "a warning of Python" in messages[2]
    quiet = logged(log_format="json", log_level="error")
    logging.getLogger("monarq.test").warning("not heard")
    assert quiet.getvalue() == ""


def test_slow_requests_are_logged_but_not_pops_that_waited() -> None:
    stream = logged(log_format="json")
    observer = Observer(Settings(slow_request_ms=100), RequestMetrics())
    observer.observe(route("/api/v1/push"), {}, 201, 0.099)
    observer.observe(route("/api/v1/pop/queue/{queue}"), {}, 200, 29.0)
    assert stream.getvalue() == ""
    observer.observe(route("/api/v1/push"), {}, 201, 0.1)
    line = json.loads(stream.getvalue())
    assert (line["level"], line["route"], line["status"], line["ms"]) == (
        "warning",
        "/api/v1/push",
        201,
        100.0,
    )


@pytest.mark.parametrize("served_store", ["sqlite"], indirect=True)
def test_nothing_secret_is_ever_logged(start_server: StartServer) -> None:
    token = jwt.encode({"sub": "ann", "role": "admin", "exp": 2**33}, SECRET, "HS256")
    server = start_server(auth=True, jwt_secret=SECRET, log_level="debug", peer_key="hunter2key")
    headers = {"Authorization": f"Bearer {token}"}
    body = {"items": [{"queue": "q", "payload": "hunter2 payload"}]}
    assert server.post("/api/v1/push", body, headers=headers).status == 201
    assert server.get("/api/v1/pop/queue/q", headers=headers).status == 200
    assert server.get("/api/v1/pop/queue/q?token=hunter2query", headers=headers).status == 400
    assert server.get("/api/v1/pop/queue/q", headers={"X-API-Key": "mq_a_hunter2"}).status == 401
    assert server.get("/api/v1/pop/queue/q", headers={"Authorization": "hunter2"}).status == 401
    server.stop()
    text = json.dumps(server.log)
    assert sum(line.get("message") == "request" for line in server.log) == 5
    assert any(line.get("message") == "listening" for line in server.log)
    for secret in ("hunter2", SECRET, token, token.split(".")[2]):
        assert secret not in text
