"""A client proves its user to brokers on this machine, and tells nobody else how."""

import http.server
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from monarq import Client, local_token
from monarq.client.local_proof import LocalProof
from monarq.errors import MonarqError
from monarq.local_token import HEADER


@pytest.fixture(autouse=True)
def token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "share"))
    return local_token.make_token()


class Listener(http.server.ThreadingHTTPServer):
    """Answers every call, and keeps the headers."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.heard: list[dict[str, str]] = []
        self.url = f"http://127.0.0.1:{self.server_address[1]}"


class Handler(http.server.BaseHTTPRequestHandler):
    server: Listener

    def do_GET(self) -> None:
        self.server.heard.append({name.lower(): text for name, text in self.headers.items()})
        body = b'{"queues": [], "limit": 1, "offset": 0, "next": null}'
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: Any) -> None:
        pass


@contextmanager
def listening() -> Iterator[Listener]:
    with Listener() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def test_the_token_goes_to_a_broker_on_this_machine(token: str) -> None:
    with listening() as broker:
        for url in (broker.url, broker.url.replace("127.0.0.1", "localhost")):
            Client(url).close()
    assert [heard.get(HEADER.lower()) for heard in broker.heard] == [token, token]


def test_a_client_with_a_token_of_its_own_sends_only_that() -> None:
    with listening() as broker:
        Client(broker.url, token="mq_own").close()
    [heard] = broker.heard
    assert heard["authorization"] == "Bearer mq_own"
    assert HEADER.lower() not in heard


def test_a_proxy_never_sees_the_token(monkeypatch: pytest.MonkeyPatch, token: str) -> None:
    with listening() as proxy, listening() as broker:
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
            monkeypatch.setenv(name, proxy.url)
        for name in ("NO_PROXY", "no_proxy"):
            monkeypatch.delenv(name, raising=False)
        Client(broker.url).close()
        Client("http://broker.invalid:6632").close()
    assert [heard.get(HEADER.lower()) for heard in broker.heard] == [token]
    assert proxy.heard
    assert not [heard for heard in proxy.heard if HEADER.lower() in heard]


@pytest.mark.parametrize(
    ("url", "is_local"),
    [
        ("http://127.0.0.1:6632", True),
        ("http://127.8.8.8", True),
        ("https://localhost:1", True),
        ("http://[::1]:6632/path", True),
        ("http://user@127.0.0.1:1", True),
        ("http://10.0.0.1:6632", False),
        ("http://broker", False),
        ("http://localhost.example.org", False),
        ("http://127.0.0.1.example.org", False),
        ("http://127.0.0.1@example.org", False),
        ("http://[::2]", False),
        ("http://0.0.0.0:6632", False),
    ],
)
def test_only_loopback_addresses_get_the_token(url: str, is_local: bool, token: str) -> None:
    assert LocalProof([url]).headers(url) == ({HEADER: token} if is_local else None)


def test_of_several_brokers_only_the_local_ones_get_it(token: str) -> None:
    urls = ["http://127.0.0.1:1", "http://broker.example.org:1"]
    proof = LocalProof(urls)
    assert [proof.headers(url) for url in urls] == [{HEADER: token}, None]


@pytest.mark.slow
def test_without_a_file_the_client_works_as_before(tmp_path: Path) -> None:
    (tmp_path / "share" / "monarq" / "local-token").unlink()
    with listening() as broker:
        Client(broker.url).close()
    assert HEADER.lower() not in broker.heard[0]
    with pytest.raises(MonarqError):
        Client(broker.url, timeout=0.2)
