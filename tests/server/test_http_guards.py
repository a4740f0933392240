"""Headers that keep browsers from guessing, keeping or sharing answers, and limits per address."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from monarq.server.exchange import Response, StreamingResponse
from monarq.server.http.writing import Heads
from tests.server.http_endpoint import Served, serve

GUARDS = {
    "x-content-type-options": "nosniff",
    "cache-control": "no-store",
    "cross-origin-resource-policy": "same-origin",
}


def request(method: bytes, *lines: bytes) -> bytes:
    return b"\r\n".join((method + b" / HTTP/1.1", b"Host: x", *lines, b"", b""))


async def chunks() -> AsyncIterator[bytes]:
    yield b"a"


ANSWERS: dict[str, Any] = {
    "plain": lambda *_: Response(200, b"{}"),
    "empty": lambda *_: Response(204),
    "error": lambda *_: Response(404, b"{}"),
    "other type": lambda *_: Response(200, b"x", b"text/plain"),
    "own header": lambda *_: Response(200, b"x", headers=((b"ETag", b"x"),)),
    "stream": lambda *_: StreamingResponse(chunks()),
}


@pytest.mark.parametrize("answer", ANSWERS.values(), ids=ANSWERS.keys())
def test_every_answer_to_a_get_carries_the_guards_once(answer: Any) -> None:
    with serve(Served(answer)) as server, server.connect() as client:
        for lines in ((), (b"Connection: close",)):
            client.send(request(b"GET", *lines))
            found = client.answer()
            assert GUARDS.items() <= found.headers.items()
    with serve(Served(answer)) as server:
        head, _, _ = server.answer_bytes(request(b"GET", b"Connection: close")).partition(
            b"\r\n\r\n"
        )
        for name in GUARDS:
            assert head.lower().count(name.encode()) == 1


def test_a_request_that_cannot_be_read_is_refused_with_the_guards() -> None:
    with serve(Served(ANSWERS["plain"])) as server:
        answer = server.answer(b"nonsense\r\n\r\n")
        assert answer.status == 400
        assert GUARDS.items() <= answer.headers.items()


def test_a_header_of_the_answers_own_wins() -> None:
    own = ((b"Cache-Control", b"no-cache"), (b"x-content-type-options", b"nosniff"))
    with serve(Served(lambda *_: Response(200, b"x", headers=own))) as server:
        head = server.answer_bytes(request(b"GET", b"Connection: close")).lower()
        assert head.count(b"cache-control: no-cache") == 1
        assert b"no-store" not in head
        assert head.count(b"nosniff") == 1
        assert b"cross-origin-resource-policy" in head


def test_an_answer_to_a_push_stays_small() -> None:
    with serve(Served(ANSWERS["plain"])) as server, server.connect() as client:
        client.send(request(b"POST", b"Content-Length: 0"))
        assert set(client.answer().headers) == {"content-type", "content-length", "date"}


@pytest.mark.parametrize("secure", [True, False])
def test_over_tls_browsers_are_told_to_stay_with_it(secure: bool) -> None:
    heads = Heads(secure=secure)
    heads.refresh(0.0)
    assert (b"\r\nStrict-Transport-Security: max-age=" in heads.plain(200, 2, True)) == secure
    assert (b"\r\nStrict-Transport-Security: max-age=" in heads.guards(())) == secure
    assert b"Strict" not in heads.plain(200, 2, False)


def test_event_streams_of_one_address_are_limited_and_others_are_not() -> None:
    going = asyncio.Event()

    async def endless() -> AsyncIterator[bytes]:
        yield b"first"
        await going.wait()

    def answer(method: str, target: str, body: bytes) -> StreamingResponse:
        return StreamingResponse(endless(), is_event_stream=target == "/events")

    def ask(target: bytes) -> bytes:
        return b"GET %b HTTP/1.1\r\nHost: x\r\n\r\n" % target

    with serve(Served(answer), event_streams_per_address=1) as server, server.connect() as second:
        with server.connect() as first:
            first.send(ask(b"/events"))
            assert first.head()[0] == 200
            for _ in range(2):
                second.send(ask(b"/events"))
                refused = second.answer()
                assert (refused.status, b"your address" in refused.body) == (503, True)
            with server.connect() as export:
                export.send(ask(b"/export"))
                assert export.head()[0] == 200
        server.wait_until(lambda: not server.endpoint.event_streams)
        second.send(ask(b"/events"))
        assert second.head()[0] == 200
