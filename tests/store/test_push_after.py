"""Calls that come after another one: stored behind it, or refused."""

import asyncio

import pytest

from monarq.errors import AlreadyPushedError, ConflictError, InvalidRequestError, MonarqError
from monarq.model import Push, PushItem, PushStatus
from monarq.store import Store
from tests.store.calls import code_of, push
from tests.store.conftest import OpenStore
from tests.store.numbered_pushes import of, stored
from tests.store.scenarios import WORK, every, nothing_changes

pytestmark = pytest.mark.smoke


async def in_order(store: Store, queue: str = "q") -> list[int]:
    rows = await every(store.list_messages, queue)
    return [int(row.payload) for row in sorted(rows, key=lambda row: row.seq)]


async def test_a_call_after_one_that_was_stored_is_stored(store: Store) -> None:
    await store.push(of(1), mark="first")
    await store.push(of(2), mark="second", after="first")
    await store.push(of(3, partition="other"), after="second")
    assert await stored(store) == [1, 2, 3]


@pytest.mark.parametrize("queue", ["q", "jobs", "new"])
async def test_a_call_after_one_that_is_not_there_stores_nothing(store: Store, queue: str) -> None:
    await store.configure("jobs", kind=WORK)
    await push(store, "q", b"0", partition="p")
    request = [Push([PushItem(queue, b"1", transaction_id="t")])]
    async with nothing_changes(store):
        with pytest.raises(ConflictError, match="is not stored"):
            await store.push(request, mark="second", after="first")
    await store.push([Push([PushItem("q", b"2")])], mark="first")
    [answers] = await store.push(request, mark="second", after="first")
    assert not isinstance(answers, MonarqError)
    assert [answer.status for answer in answers] == [PushStatus.QUEUED]


async def test_what_was_refused_has_nothing_after_it(store: Store) -> None:
    await store.configure("q", options={"maxSize": 1})
    [answer] = await store.push([Push([*of(1)[0].items, *of(2)[0].items])], mark="first")
    assert code_of(answer) == "queue_full"
    with pytest.raises(ConflictError):
        await store.push(of(3), after="first")
    assert await stored(store) == []


async def test_a_call_of_which_all_was_there_already_is_one_to_come_after(store: Store) -> None:
    known = [Push([PushItem("q", b"1", "p", transaction_id="t")])]
    await store.push(known)
    await store.push(known, mark="first")
    await store.push(of(2), after="first")
    assert await in_order(store) == [1, 2]


async def test_a_repeat_of_a_call_that_came_after_another_is_known(store: Store) -> None:
    await store.push(of(1), mark="first")
    await store.push(of(2), mark="second", after="first")
    with pytest.raises(AlreadyPushedError):
        await store.push(of(2), mark="second", after="first")
    assert await in_order(store) == [1, 2]


async def test_a_malformed_mark_to_come_after_is_refused(store: Store) -> None:
    async with nothing_changes(store):
        for after in ("", "x" * 65, "a\nb"):
            with pytest.raises(InvalidRequestError, match="mark"):
                await store.push(of(1), after=after)


async def test_calls_that_are_sent_at_once_keep_their_order_or_are_refused(
    store: Store, open_another: OpenStore
) -> None:
    """From two processes, as it were: whichever comes to the partition first."""
    other = await open_another()
    expected = []
    for number in range(40):
        stores = (store, other) if number % 3 else (store, store)
        calls = (
            stores[0].push(of(2 * number), mark=f"{number}"),
            stores[1].push(of(2 * number + 1), after=f"{number}"),
        )
        turned = number % 2
        answers = await asyncio.gather(
            *(reversed(calls) if turned else calls), return_exceptions=True
        )
        first, second = reversed(answers) if turned else answers
        assert not isinstance(first, BaseException)
        expected.append(2 * number)
        if isinstance(second, BaseException):
            assert isinstance(second, ConflictError)
        else:
            expected.append(2 * number + 1)
    assert await in_order(store) == expected
