"""Ways to read that fail: one clear error, no secret told, and never a short table."""

import http.server
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from monarq.errors import (
    EncryptionKeyError,
    InvalidRequestError,
    MonarqError,
    NotFoundError,
    StoreUnavailableError,
    UnauthorizedError,
)
from monarq.spark.access import Access, SeqRange, open_access
from monarq.store import open_store
from monarq.tables import arrow_schema
from tests.server.serving import ServerProcess
from tests.spark.ranges import read, whole
from tests.spark.seeding import Urls, fill, numbered
from tests.store.calls import push


@pytest.mark.parametrize(
    ("url", "options"),
    [
        ("ftp://host", {}),
        ("orders", {}),
        ("http://", {}),
        ("http://host:port", {}),
        ("http://host:1/?a=b", {}),
        ("sqlite:///x.db", {"token": "secret"}),
        ("http://host", {"encryption_key": "00" * 32}),
        ("sqlite:///x.db", {"encryption_key": "short"}),
    ],
)
def test_what_names_no_way_is_refused_without_telling_secrets(
    url: str, options: dict[str, str]
) -> None:
    with pytest.raises(MonarqError) as refused:
        open_access(url, **options)  # type: ignore[arg-type]
    assert "\n" not in str(refused.value)
    assert not any(secret in str(refused.value) for secret in options.values())


def test_a_store_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailableError, match=r"missing\.db"):
        open_access(f"sqlite:///{tmp_path / 'missing.db'}")
    assert list(tmp_path.iterdir()) == []


def test_missing_queues_and_wrong_tables_are_told_the_same_way(
    urls: Urls, opened: Callable[..., Access]
) -> None:
    fill(urls.store, numbered("q", 1))
    for access in (opened(urls.store), opened(urls.broker)):
        with pytest.raises(NotFoundError, match="nowhere"):
            access.plan("nowhere")
        for wrong in (
            lambda: access.log_rows("items", None, None, ["seq"]),  # noqa: B023
            lambda: access.rows("deliveries", ["id"]),  # noqa: B023
            lambda: access.rows("nothing", ["id"]),  # noqa: B023
            lambda: list(access.rows("items", ["nothing"])),  # noqa: B023
            lambda: list(access.messages([], ["nothing"])),  # noqa: B023
            lambda: access.log_end("items"),  # noqa: B023
            lambda: list(access.log_rows("deliveries", "x", None, ["id"])),  # noqa: B023
        ):
            with pytest.raises(InvalidRequestError):
                wrong()


def test_encrypted_payloads_need_the_key_and_any_of_several_opens_them(
    store_url: str, opened: Callable[..., Access]
) -> None:
    import asyncio

    old, new = bytes(range(32)), bytes(range(32, 64))

    async def seal() -> None:
        for key in (old, new):
            async with await open_store(store_url, keys=[key]) as store:
                await store.configure("q", options={"encryptionEnabled": True})
                await push(store, "q", b'"secret"')

    asyncio.run(seal())
    access = opened(store_url, encryption_key=f"{new.hex()},{old.hex()}")
    assert read(access, whole(access, "q"))["payload"].to_pylist() == ['"secret"'] * 2
    without = opened(store_url)
    assert read(without, whole(without, "q"), ["seq"]).num_rows == 2
    with pytest.raises(EncryptionKeyError):
        read(without, whole(without, "q"))


def test_another_schema_is_another_store(
    postgres_urls: Urls, opened: Callable[..., Access]
) -> None:
    fill(postgres_urls.store, numbered("q", 1))
    other = opened(postgres_urls.store, schema="elsewhere")
    assert other.queues() == []
    assert len(opened(postgres_urls.store).queues()) == 1


def test_a_broker_that_is_not_there_is_one_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("monarq.spark.access.connections._PAUSE_SECONDS", 0.001)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        access = open_access(url)
        with pytest.raises(StoreUnavailableError, match=url):
            access.queues()
        access.close()
        with pytest.raises(StoreUnavailableError, match="closed"):
            access.queues()


def test_a_wrong_token_is_refused_at_once_and_not_told(
    tmp_path: Path, opened: Callable[..., Access]
) -> None:
    settings = {"store": "memory:", "auth": True, "jwt_secret": "x" * 40, "data_dir": str(tmp_path)}
    with ServerProcess(settings) as server:
        for token in (None, "nonsense-token"):
            access = opened(server.url, token=token)
            with pytest.raises(UnauthorizedError) as refused:
                access.queues()
            assert "nonsense-token" not in str(refused.value)


class _Broken(http.server.BaseHTTPRequestHandler):
    """Answers every request with the beginning of something."""

    protocol_version = "HTTP/1.1"
    answer = b""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.wfile.write(self.answer)
        self.close_connection = True

    def log_message(self, *_: Any) -> None:
        """Nobody reads it."""


@pytest.mark.parametrize("where", ["nothing", "in the schema", "between batches", "no Arrow"])
def test_an_answer_that_breaks_off_is_an_error_and_never_a_short_table(
    where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    schema = arrow_schema("messages", ["seq"])
    start = schema.serialize().to_pybytes()
    batch = pa.record_batch([pa.array([1, 2, 3])], schema=schema).serialize().to_pybytes()
    sent = {
        "nothing": b"",
        "in the schema": _chunk(start[:40]),
        "between batches": _chunk(start + batch),
        "no Arrow": _chunk(b"<html>sorry</html>" * 10) + b"0\r\n\r\n",
    }[where]
    monkeypatch.setattr(_Broken, "answer", sent)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Broken)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    access = open_access(f"http://127.0.0.1:{server.server_port}")
    try:
        with pytest.raises(StoreUnavailableError):
            read(access, [SeqRange("q", 1, "p", 1, 9)], ["seq"])
    finally:
        access.close()
        server.shutdown()
        thread.join()
        server.server_close()


def _chunk(content: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(content), content)
