"""A client whose calls are answered by something else than a broker: a proxy, a wrong address."""

from pathlib import Path

import pytest

from monarq.client.async_client import AsyncClient
from monarq.errors import InvalidRequestError, MonarqError, StoreUnavailableError
from tests.client.conftest import served
from tests.server.plain_server import Handler, answering

STRANGE = {
    "a page": b"<html>hello</html>",
    "nothing": b"",
    "another object": b'{"a": [1]}',
    "a list": b"[1, 2]",
    "null": b"null",
    "no UTF-8": b'"\xff"',
    "without end": b"[" * 100_000,
}


def answering_with(status: int, body: bytes) -> type[Handler]:
    """Answers so to all but the call with which a client opens."""

    class Strange(Handler):
        def answer(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            is_opening = self.path == "/api/v1/resources/queues?limit=1"
            content = b"{}" if is_opening else body
            self.send_response(200 if is_opening else status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

    return Strange


@pytest.mark.parametrize("body", STRANGE.values(), ids=STRANGE)
async def test_an_answer_that_is_no_brokers_is_an_error_of_ours(body: bytes) -> None:
    with answering(answering_with(200, body)) as url:
        async with AsyncClient(url) as mq:
            queue = mq.queue("q")
            with pytest.raises(StoreUnavailableError, match="broker"):
                await queue.push(1)
            with pytest.raises(StoreUnavailableError, match="broker"):
                await mq.admin.list_queues()
            if body:  # as a pop that found nothing
                with pytest.raises(StoreUnavailableError, match="broker"):
                    await queue.pop()


@pytest.mark.parametrize(
    "body", [*STRANGE.values(), b'{"error": 5, "code": []}'], ids=[*STRANGE, "wrong types"]
)
async def test_a_refusal_that_is_no_brokers_is_an_error_of_ours(body: bytes) -> None:
    with answering(answering_with(418, body)) as url:
        async with AsyncClient(url) as mq:
            with pytest.raises(MonarqError):
                await mq.queue("q").push(1)


@pytest.mark.parametrize("status", [502, 503, 504])
async def test_a_proxy_without_a_broker_is_passed_over(status: int, tmp_path: Path) -> None:
    with answering(answering_with(status, b"<h1>Bad Gateway</h1>")) as url:
        async with served(tmp_path) as broker, AsyncClient([url, broker]) as mq:
            queue = mq.queue("q")
            pushed = [await queue.push(n) for n in range(4)]
            assert [each.seq for each in pushed] == [1, 2, 3, 4]


@pytest.mark.parametrize("url", ["http://", "http://[::1", "http://host:abc", "http://host:99999"])
def test_what_is_no_url_is_refused(url: str) -> None:
    with pytest.raises(InvalidRequestError, match="not the URL of a broker"):
        AsyncClient(["http://host", url])
