"""Whatever bytes are pushed: a clear refusal, or exactly what was sent comes back."""

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.server.application import Api, running_api

values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**30), 10**30)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
texts = values.map(json.dumps).map(str.encode)
"""Good JSON, with every character escaped that can be."""


@st.composite
def damaged(draw: Any) -> bytes:
    """JSON with some of its bytes changed, cut or put in."""
    text = bytearray(draw(texts))
    for _ in range(draw(st.integers(1, 3))):
        place = draw(st.integers(0, max(0, len(text) - 1)))
        match draw(st.sampled_from("xid")):
            case "x" if text:
                text[place] = draw(st.integers(0, 255))
            case "i":
                text[place:place] = draw(
                    st.sampled_from([b"\\", b'"', b"\x00", b"\\ud800", b"0", b"e", b"[", b"\xc3"])
                )
            case _:
                del text[place : place + draw(st.integers(1, 4))]
    return bytes(text)


class Pushes:
    """One application for all examples, on a loop that stands still between them."""

    def __init__(self, runner: asyncio.Runner, api: Api) -> None:
        self._runner = runner
        self._api = api

    def push(self, payload: bytes) -> tuple[int, bytes]:
        """The status of a push of two, and the whole answer of a pop of what it stored."""
        return self._runner.run(self._push(payload))

    async def _push(self, payload: bytes) -> tuple[int, bytes]:
        body = b'{"items":[{"queue":"q","payload":%b},{"queue":"q","payload":"end"}]}' % payload
        pushed = await self._api.post("/api/v1/push", body)
        if pushed.status != 201:
            assert pushed.error
        popped = await self._api.get("/api/v1/pop/queue/q?batch=100&autoAck=true")
        return pushed.status, popped.body


@pytest.fixture(scope="module")
def pushes() -> Iterator[Pushes]:
    with asyncio.Runner() as runner:
        running = running_api("memory:")
        api = runner.run(running.__aenter__())
        yield Pushes(runner, api)
        runner.run(running.__aexit__(None, None, None))


def _strictly(text: bytes) -> Any:
    """As Python reads it, without what it takes beyond JSON."""

    def refuse(constant: str) -> Any:
        raise ValueError(constant)

    return json.loads(text.decode(), parse_constant=refuse)


@pytest.mark.slow
@settings(deadline=None)
@given(payload=texts)
def test_good_json_comes_back_as_it_was_sent(pushes: Pushes, payload: bytes) -> None:
    status, answer = pushes.push(payload)
    if b"\\ud" in payload:
        # Half a surrogate pair may be refused: it is no text.
        assert status in (201, 400)
    else:
        assert status == 201
    if status == 201:
        assert b'"data":' + payload + b"," in answer
        assert len(_strictly(answer)["messages"]) == 2


@pytest.mark.slow
@settings(deadline=None, max_examples=400)
@given(payload=damaged())
@example(payload=b'1},{"queue":"q","payload":2')
@example(payload=b'1,"payload":2')
@example(payload=b'"\\udc00"')
@example(payload=b'"\\ud83d\\u0041"')
@example(payload=b"1e5000")
@example(payload=b"-" + b"9" * 4_000)
@example(payload=b" \r\n\t1 ")
@example(payload=b"\x0b1")
def test_damaged_json_is_refused_or_was_none_the_less_good(pushes: Pushes, payload: bytes) -> None:
    status, answer = pushes.push(payload)
    assert status in (201, 400)
    if status == 201:
        told = _strictly(answer.replace(b"9" * 4_000, b"9"))
        assert told["messages"][-1]["data"] == "end"
    else:
        assert answer == b""
