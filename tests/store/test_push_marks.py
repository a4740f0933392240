"""Marks of push calls: a call that is repeated because nobody knows what became of it is stored
once, whatever the first try has done or is still doing."""

import asyncio
import sys
from pathlib import Path

import asyncpg
import pytest

from monarq.clock import DAY, SECOND, ManualClock
from monarq.errors import AlreadyPushedError, InvalidRequestError, StoreUnavailableError
from monarq.model import Push, PushItem
from monarq.store import Store, open_store
from tests.conftest import NewPostgresServer
from tests.store.calls import code_of, push, unwrap
from tests.store.conftest import OpenStore
from tests.store.numbered_pushes import of, stored
from tests.store.scenarios import WORK, drain, nothing_changes, numbers, stats
from tests.store.waiting import wait_until

pytestmark = pytest.mark.smoke

PROJECT = Path(__file__).parents[2]


async def test_a_repeat_stores_nothing_and_says_so(store: Store) -> None:
    assert len(await store.push(of(1, 2), mark="m")) == 2
    async with nothing_changes(store):
        with pytest.raises(AlreadyPushedError, match="this mark was stored"):
            await store.push(of(1, 2), mark="m")
        with pytest.raises(AlreadyPushedError) as raised:
            await store.push(of(3, queue="another"), mark="m")
    assert raised.value.code == "already_pushed"
    assert numbers(await drain(store, "q")) == [1, 2]


async def test_calls_with_other_marks_or_none_are_no_repeats(store: Store) -> None:
    for mark in ("m", "M", " m", None, None):
        await store.push(of(1), mark=mark)
    assert await stored(store) == [1] * 5


async def test_a_mark_holds_after_the_store_was_opened_again(
    store: Store, open_another: OpenStore
) -> None:
    await store.push(of(1), mark="m")
    other = await open_another()
    with pytest.raises(AlreadyPushedError):
        await other.push(of(1), mark="m")
    await store.close()
    with pytest.raises(AlreadyPushedError):
        await (await open_another()).push(of(1), mark="m")
    assert await stored(other) == [1]


async def test_a_call_of_which_a_part_was_stored_is_a_repeat_the_next_time(store: Store) -> None:
    malformed = Push([PushItem("q", b"")])
    answers = await store.push([malformed, *of(1)], mark="m")
    assert [code_of(answer) for answer in answers] == ["invalid_request", None]
    with pytest.raises(AlreadyPushedError):
        await store.push([malformed, *of(1)], mark="m")
    assert await stored(store) == [1]


async def test_a_call_of_which_nothing_was_stored_may_come_again(store: Store) -> None:
    await store.configure("q", options={"maxSize": 1})
    await push(store, "q", b"0", partition="p")
    for requests in ([Push([])], of(1), of(1, 2)):
        answers = await store.push(requests, mark="m")
        assert None not in map(code_of, answers)
    await store.configure("q", options={"maxSize": 2})
    unwrap(await store.push(of(1), mark="m"))
    assert await stored(store) == [0, 1]


async def test_what_the_first_try_changed_does_not_hide_that_it_is_a_repeat(store: Store) -> None:
    await store.configure("full", options={"maxSize": 1})
    unwrap(await store.push(of(1, queue="full"), mark="fills"))
    with pytest.raises(AlreadyPushedError):
        await store.push(of(1, queue="full"), mark="fills")
    unwrap(await store.push(of(1, queue="gone"), mark="deleted"))
    await store.delete_queue("gone")
    with pytest.raises(AlreadyPushedError):
        await store.push(of(1, queue="gone"), mark="deleted")
    # What fits no queue any more is refused without a look at the store's tables.
    unwrap(await store.push(of(1, queue="was ordered"), mark="another kind"))
    await store.delete_queue("was ordered")
    await store.configure("was ordered", kind=WORK)
    with pytest.raises(AlreadyPushedError):
        await store.push(of(1, queue="was ordered"), mark="another kind")


async def test_a_call_with_nothing_but_duplicates_keeps_its_mark(store: Store) -> None:
    request = Push([PushItem("q", b"1", transaction_id="t")])
    unwrap(await store.push([request], mark="first"))
    [answer] = unwrap(await store.push([request], mark="second"))
    assert answer.status == "duplicate"
    for mark in ("first", "second"):
        with pytest.raises(AlreadyPushedError):
            await store.push([request], mark=mark)


async def test_a_call_to_both_kinds_of_queue_has_one_mark(store: Store) -> None:
    await store.configure("w", kind=WORK)
    both = [Push([PushItem("w", b"1"), PushItem("q", b"1")]), Push([PushItem("w", b"2")])]
    assert len(await store.push(both, mark="m")) == 2
    for requests in (both, both[1:]):
        with pytest.raises(AlreadyPushedError):
            await store.push(requests, mark="m")
    await store.push(both[1:], mark="n")
    assert (await stats(store, "w")).stored == 3
    assert (await stats(store, "q")).stored == 1


@pytest.mark.parametrize("mark", ["", "x" * 65, "ü", "a\nb", "a\x00", 7, b"m"])
async def test_what_is_no_mark_is_refused(store: Store, mark: str) -> None:
    async with nothing_changes(store):
        with pytest.raises(InvalidRequestError, match="mark"):
            await store.push(of(1), mark=mark)


async def test_the_longest_mark_is_taken(store: Store) -> None:
    mark = "~" * 64
    unwrap(await store.push(of(1), mark=mark))
    with pytest.raises(AlreadyPushedError):
        await store.push(of(1), mark=mark)


async def test_marks_are_kept_a_day_and_removed_in_bounded_steps(
    store: Store, clock: ManualClock
) -> None:
    await store.configure("q", options={"retentionEnabled": False})
    for n in range(25):
        unwrap(await store.push(of(n), mark=f"m{n}"))
    clock.advance((DAY - SECOND) / SECOND)
    await store.lifecycle()
    with pytest.raises(AlreadyPushedError):
        await store.push(of(7), mark="m7")
    clock.advance(1)
    steps = []
    while (report := await store.lifecycle(limit=10)).removed:
        steps.append(report.removed)
        if sum(steps) < 25:
            assert report.next_at is not None
            assert report.next_at <= clock.now()
    assert sum(steps) == 25
    unwrap(await store.push(of(7), mark="m7"))
    assert (await stored(store)).count(7) == 2


async def test_of_many_calls_with_one_mark_at_once_exactly_one_is_stored(
    store: Store, open_another: OpenStore
) -> None:
    others = [store, await open_another(), await open_another()]

    async def attempt(n: int, round_: int) -> bool:
        # A new partition in each round, so that some of them have to make it.
        requests = of(round_, partition=f"p{round_ // 2}")
        try:
            unwrap(await others[n % 3].push(requests, mark=f"m{round_}"))
        except AlreadyPushedError:
            return False
        return True

    for round_ in range(10):
        won = await asyncio.gather(*(attempt(n, round_) for n in range(9)))
        assert sum(won) == 1
    assert await stored(store) == list(range(10))


# --- PostgreSQL: the first try goes on where nobody hears of it ---


async def repeat_until_answered(store: Store, n: int) -> None:
    """As a broker does: the same call with the same mark until it is known what became of it."""
    for _ in range(100):
        try:
            unwrap(await store.push(of(n, partition=f"p{n % 3}"), mark=f"m{n}"))
            return
        except AlreadyPushedError:
            return
        except StoreUnavailableError:
            await asyncio.sleep(0.05)
    raise AssertionError("never answered")


WAITING_PUSHES = """
    (select count(*) from pg_stat_activity
    where wait_event_type = 'Lock' and query like '%push_messages%')
"""


@pytest.mark.parametrize("place", ["postgres-newest"], indirect=True)
async def test_a_call_with_a_request_that_postgresql_does_not_take_is_still_one_transaction(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if validation had overlooked something: only the guilty request fails, and the mark
    stands for the others together."""
    monkeypatch.setattr("monarq.store.validation.fields.check_name", lambda value, field: None)
    requests = [*of(1), Push([PushItem("q", b"2", "p", "\0")]), *of(3, partition="new")]
    answers = await store.push(requests, mark="m")
    assert [code_of(answer) for answer in answers] == [None, "invalid_request", None]
    with pytest.raises(AlreadyPushedError):
        await store.push(requests, mark="m")
    assert await stored(store) == [1, 3]
    [row] = await store._database.fetch(  # type: ignore[attr-defined]
        "select count(distinct xmin::text) as count from monarq.segments"
    )
    assert row["count"] == 1


@pytest.mark.slow
async def test_a_push_whose_client_was_killed_is_not_stored_again_by_the_repeat(
    new_postgres_server: NewPostgresServer,
) -> None:
    """kill -9 of the client while its push waits in the server, which then goes on with it."""
    server = await asyncio.to_thread(new_postgres_server)
    script = (
        "import asyncio, sys\n"
        "from monarq.model import Push, PushItem\n"
        "from monarq.store import open_store\n"
        "async def main():\n"
        "    store = await open_store(sys.argv[1])\n"
        "    await store.push([Push([PushItem('q', b'1', 'p')])], mark='m')\n"
        "asyncio.run(main())\n"
    )
    async with await open_store(server.dsn) as store:
        await push(store, "q", b"0", partition="p")
        connection = await asyncpg.connect(server.dsn)
        watcher = await asyncpg.connect(server.dsn)
        holding = connection.transaction()
        await holding.start()
        await connection.execute("select 1 from monarq.partitions for update")
        client = await asyncio.create_subprocess_exec(
            sys.executable, "-c", script, server.dsn, cwd=PROJECT
        )
        try:
            await wait_until(watcher, f"{WAITING_PUSHES} = 1")
        finally:
            client.kill()
            await client.wait()
        repeat = asyncio.create_task(store.push(of(1), mark="m"))
        await wait_until(watcher, f"{WAITING_PUSHES} = 2")
        await holding.rollback()
        with pytest.raises(AlreadyPushedError):
            await repeat
        assert await stored(store) == [0, 1]
        await watcher.close()
        await connection.close()


@pytest.mark.slow
async def test_pushes_that_were_under_way_when_the_server_stood_still_are_stored_once(
    new_postgres_server: NewPostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SIGSTOP: clients give up, the server later goes on with what it had."""
    server = await asyncio.to_thread(new_postgres_server)
    # With all its time: the tables are made, and a loaded machine is slow at that.
    await (await open_store(server.dsn)).close()
    monkeypatch.setattr("monarq.store.postgres.database.CALL_TIMEOUT", 1)
    async with await open_store(server.dsn) as store:
        total = 0
        for _ in range(3):
            pushes = [
                asyncio.create_task(repeat_until_answered(store, n))
                for n in range(total, total + 40)
            ]
            await asyncio.sleep(0.02)
            server.pause()
            await asyncio.sleep(1.3)
            server.resume()
            await asyncio.gather(*pushes)
            total += 40
        assert await stored(store) == list(range(total))


@pytest.mark.slow
async def test_pushes_that_were_under_way_when_the_server_was_killed_are_stored_once(
    new_postgres_server: NewPostgresServer,
) -> None:
    server = await asyncio.to_thread(new_postgres_server, durable=True)
    async with await open_store(server.dsn) as store:
        total = 0
        for _ in range(3):
            pushes = [
                asyncio.create_task(repeat_until_answered(store, n))
                for n in range(total, total + 100)
            ]
            await asyncio.sleep(0.03)
            await asyncio.to_thread(server.kill)
            await asyncio.to_thread(server.restart)
            await asyncio.gather(*pushes)
            total += 100
        assert await stored(store) == list(range(total))


async def test_a_repeat_is_told_which_requests_were_refused_the_first_time(store: Store) -> None:
    await store.configure("full", options={"maxSize": 1})
    requests = [*of(1), *of(2, 3, queue="full"), Push([]), *of(4), Push([WORK_ITEM])]
    answers = await store.push(requests, mark="m")
    assert [code_of(answer) for answer in answers] == [
        None, None, "queue_full", "invalid_request", None, "invalid_request",
    ]  # fmt: skip
    with pytest.raises(AlreadyPushedError) as raised:
        await store.push(requests, mark="m")
    assert raised.value.refused == [2, 5]  # the fourth is malformed, whoever is asked


async def test_a_call_of_which_all_is_refused_is_refused_the_same_way_again(store: Store) -> None:
    for queue in ("q", "new"):
        await store.push(of(1, queue="q"))
        for _ in range(2):
            [answer] = await store.push([Push([PushItem(queue, b"1", priority=3)])], mark=queue)
            assert isinstance(answer, InvalidRequestError)
        [answer] = await store.push(of(2, queue=queue), mark=queue)
        assert isinstance(answer, list)


WORK_ITEM = PushItem("q", b"1", priority=3)
