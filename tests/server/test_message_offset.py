"""`messages?offset=` reads no more rows at a large offset than at a small one."""

from typing import Any

import pytest

from monarq.model import Push, PushItem
from monarq.operations import Operation
from tests.server.application import Api

COUNT = 100_000


async def test_the_rows_read_do_not_grow_with_the_offset(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = api.broker.store
    for first in range(0, COUNT, 10_000):
        items = [PushItem("q", b"%d" % number) for number in range(first, first + 10_000)]
        await store.push([Push(items)])
    read = 0
    carry_out = store.carry_out

    async def counted(request: Operation[Any], *, commands: bool) -> Any:
        nonlocal read
        page = await carry_out(request, commands=commands)
        read += len(page.rows)
        return page

    monkeypatch.setattr(store, "carry_out", counted)
    for offset in (0, 10, 1_000, 10_000):
        read = 0
        answer = await api.get(f"/api/v1/messages?queue=q&limit=20&offset={offset}")
        data = [row["data"] for row in answer.json["messages"]]
        assert data == list(range(offset, offset + 20))
        assert answer.json["offset"] == offset
        assert read == 20, offset
        following = await api.get(
            f"/api/v1/messages?queue=q&limit=1&offset=7&after={answer.json['next']}"
        )
        assert [row["data"] for row in following.json["messages"]] == [offset + 27]


async def test_an_offset_beyond_the_bound_says_to_page_with_after(api: Api) -> None:
    await api.push_payloads("q", 1)
    answer = await api.get("/api/v1/messages?queue=q&offset=10001")
    assert (answer.status, answer.code) == (400, "invalid_request")
    assert "offset" in answer.error
