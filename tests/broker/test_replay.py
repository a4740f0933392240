"""The replay: what was buffered reaches the store in order and once, whatever happens."""

from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import msgspec
import pytest

from monarq.broker.push_buffer import PushBuffer
from monarq.broker.replay import LONE_ATTEMPTS, Replayer
from monarq.errors import BufferWriteError, StoreUnavailableError
from monarq.model import Push, Pushed, PushItem
from monarq.store import Store, open_store
from monarq.store.contract import Outcome
from tests.broker.buffering import buffer_files, fill, push_of


class Fragile:
    """The push of a real store, which can be told to fail."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.fail_before: list[Exception] = []
        """Raised by the next calls, before the store is asked."""
        self.fail_after: list[Exception] = []
        """Raised by the next calls, after the store has done its work."""
        self.poison: str | None = None
        """A call with this text in it fails as no store should."""
        self.calls: list[int] = []
        """How many pushes each call had."""

    async def __call__(
        self, requests: Sequence[Push], *, mark: str | None
    ) -> list[Outcome[list[Pushed]]]:
        self.calls.append(len(requests))
        if self.fail_before:
            raise self.fail_before.pop(0)
        if self.poison and any(self.poison.encode() in p.items[0].payload for p in requests):
            raise RuntimeError("nobody expected this")
        answers = await self.store.push(requests, mark=mark)
        if self.fail_after:
            raise self.fail_after.pop(0)
        return answers


@pytest.fixture
async def store() -> AsyncIterator[Store]:
    async with await open_store("memory:") as store:
        yield store


@pytest.fixture
async def buffer(tmp_path: Path) -> AsyncIterator[PushBuffer]:
    buffer = await PushBuffer.open(tmp_path / "buffer", file_bytes=2_000)
    yield buffer
    await buffer.close()


@pytest.fixture
def fragile(store: Store) -> Fragile:
    return Fragile(store)


@pytest.fixture
def replayer(buffer: PushBuffer, fragile: Fragile) -> Replayer:
    async def pause() -> None:
        pass

    return Replayer(buffer, fragile, batch_max=10, batch_max_bytes=1 << 20, pause=pause)


async def replay_all(replayer: Replayer, buffer: PushBuffer) -> None:
    while not buffer.is_empty:
        await replayer.step()


async def stored(store: Store, queue: str = "q") -> list[str]:
    """The payloads of a queue with one partition, in order of seq."""
    rows = (await store.list_messages(queue, limit=1000)).rows
    assert [row.seq for row in rows] == list(range(1, len(rows) + 1))
    return [row.payload.decode().strip(' "') for row in rows]


def reasons(directory: Path) -> list[tuple[str, str]]:
    """The code and the payloads' text of each push that was set aside."""
    lines = [
        msgspec.json.decode(line)
        for path in sorted(directory.glob("set-aside/*.poison"))
        for line in path.read_bytes().splitlines()
    ]
    return [(line["code"], line["items"][0]["payload"]) for line in lines]


NUMBERS = [str(number) for number in range(50)]


async def test_what_was_buffered_reaches_the_store_in_order_and_the_files_go(
    buffer: PushBuffer, store: Store, replayer: Replayer
) -> None:
    await fill(buffer, *NUMBERS)
    await replay_all(replayer, buffer)
    assert await stored(store) == NUMBERS
    assert buffer_files(buffer.directory) == []
    assert replayer.replayed == len(NUMBERS)


async def test_several_records_go_in_one_call_within_the_bounds_of_a_batch(
    buffer: PushBuffer, fragile: Fragile, replayer: Replayer
) -> None:
    await fill(buffer, *NUMBERS)
    await replay_all(replayer, buffer)
    assert max(fragile.calls) == 10
    assert len(fragile.calls) < len(NUMBERS) / 2


async def test_a_store_that_fails_before_after_and_between_gets_each_push_once(
    buffer: PushBuffer, store: Store, fragile: Fragile, replayer: Replayer
) -> None:
    await fill(buffer, *NUMBERS)
    for round_ in range(10):
        [fragile.fail_before, fragile.fail_after][round_ % 2].append(StoreUnavailableError("down"))
        with pytest.raises(StoreUnavailableError):
            await replay_all(replayer, buffer)
    await replay_all(replayer, buffer)
    assert await stored(store) == NUMBERS


async def test_a_call_that_got_through_unheard_is_not_stored_again_although_it_had_no_ids(
    buffer: PushBuffer, store: Store, replayer: Replayer
) -> None:
    a, b, c = (PushItem("q", payload, "p") for payload in (b'"a"', b'"b"', b'"c"'))
    pushes = [Push([a]), Push([b, c])]
    await store.push(pushes, mark="m")
    with_ids = [
        Push([msgspec.structs.replace(item, transaction_id=str(item.payload)) for item in p.items])
        for p in pushes
    ]
    await buffer.append("m", with_ids, attempted=True)
    await fill(buffer, "d")
    await replay_all(replayer, buffer)
    assert await stored(store) == ["a", "b", "c", "d"]


async def test_a_call_that_never_got_through_is_stored_as_it_was(
    buffer: PushBuffer, store: Store, replayer: Replayer
) -> None:
    await buffer.append("m", [push_of("a"), push_of("b")], attempted=True)
    await fill(buffer, "c")
    await replay_all(replayer, buffer)
    assert await stored(store) == ["a", "b", "c"]


@pytest.mark.parametrize("has_room", [True, False])
async def test_what_the_store_refused_in_a_call_that_got_through_unheard_is_not_forgotten(
    buffer: PushBuffer, store: Store, replayer: Replayer, has_room: bool
) -> None:
    """`a` was stored and `b` refused, without ids, and nobody heard. Then there is room, or not."""
    await store.configure("small", options={"maxSize": 1})
    await store.push([push_of("x", queue="small")])
    pushes = [Push([PushItem("q", b'"a"', "p")]), Push([PushItem("small", b'"b"')])]
    await store.push(pushes, mark="m")
    with_ids = [
        Push([msgspec.structs.replace(item, transaction_id=str(item.payload)) for item in p.items])
        for p in pushes
    ]
    await buffer.append("m", with_ids, attempted=True)
    if has_room:
        await store.clear_queue("small")
    await replay_all(replayer, buffer)
    assert await stored(store) == ["a"]
    texts = [row.payload for row in (await store.list_messages("small")).rows]
    assert texts == ([b'"b"'] if has_room else [b'"x"'])
    assert reasons(buffer.directory) == ([] if has_room else [("queue_full", "b")])


async def test_duplicate_is_success(buffer: PushBuffer, store: Store, replayer: Replayer) -> None:
    await store.push([push_of("1"), push_of("2")])
    await fill(buffer, "1", "2", "3")
    await replay_all(replayer, buffer)
    assert await stored(store) == ["1", "2", "3"]
    assert reasons(buffer.directory) == []


async def test_one_bad_push_of_a_record_is_set_aside_alone_with_its_reason(
    buffer: PushBuffer, store: Store, replayer: Replayer
) -> None:
    bad = Push([PushItem("q", b'"bad"', "p", transaction_id="bad", priority=3)])
    await fill(buffer, "1")
    await buffer.append("m", [push_of("2"), bad, push_of("3")])
    await fill(buffer, "4")
    await replay_all(replayer, buffer)
    assert await stored(store) == ["1", "2", "3", "4"]
    assert reasons(buffer.directory) == [("invalid_request", "bad")]
    assert (replayer.replayed, replayer.set_aside) == (4, 1)
    assert len(buffer.state.set_aside) == 1


async def test_a_push_to_a_queue_that_is_full_by_now_is_set_aside_and_blocks_nobody(
    buffer: PushBuffer, store: Store, replayer: Replayer
) -> None:
    await store.configure("full", options={"maxSize": 1})
    await buffer.append("m1", [push_of("in", queue="full")])
    await buffer.append("m2", [push_of("out", queue="full")])
    await fill(buffer, "1")
    await replay_all(replayer, buffer)
    assert await stored(store) == ["1"]
    assert await stored(store, "full") == ["in"]
    assert reasons(buffer.directory) == [("queue_full", "out")]


async def test_a_push_on_which_the_store_chokes_is_set_aside_after_it_failed_alone(
    buffer: PushBuffer, store: Store, fragile: Fragile, replayer: Replayer
) -> None:
    fragile.poison = "poison"
    await fill(buffer, "1", "poison", "2", "3")
    await replay_all(replayer, buffer)
    assert await stored(store) == ["1", "2", "3"]
    assert reasons(buffer.directory) == [("unexpected", "poison")]
    assert fragile.calls == [4, 1, *[1] * LONE_ATTEMPTS, 1, 1]


async def test_a_store_that_chokes_for_a_moment_costs_nobody_a_push(
    buffer: PushBuffer, store: Store, fragile: Fragile, replayer: Replayer
) -> None:
    fragile.fail_before = [RuntimeError("hm")] * LONE_ATTEMPTS
    await fill(buffer, "1", "2", "3")
    await replay_all(replayer, buffer)
    assert await stored(store) == ["1", "2", "3"]
    assert reasons(buffer.directory) == []


async def test_a_crash_while_pushes_go_alone_stores_none_of_them_twice(
    buffer: PushBuffer, store: Store, fragile: Fragile, replayer: Replayer
) -> None:
    await fill(buffer, "1", "2", "3")
    fragile.fail_before = [RuntimeError("hm")]
    fragile.fail_after = []
    await replayer_dies_after(fragile, 2, replayer, buffer)
    assert await stored(store) == ["1", "2"]
    await replay_all(replayer, buffer)
    assert await stored(store) == ["1", "2", "3"]


async def replayer_dies_after(
    fragile: Fragile, calls: int, replayer: Replayer, buffer: PushBuffer
) -> None:
    """The store fails on the first call of all, serves so many alone, and is gone."""
    push = fragile.store.push
    served = 0

    async def counted(
        requests: Sequence[Push], *, mark: str | None = None
    ) -> list[Outcome[list[Pushed]]]:
        nonlocal served
        if served == calls:
            raise StoreUnavailableError("gone")
        served += 1
        return await push(requests, mark=mark)

    fragile.store.push = counted  # type: ignore[method-assign]
    with pytest.raises(StoreUnavailableError):
        await replay_all(replayer, buffer)
    fragile.store.push = push  # type: ignore[method-assign]


async def test_nothing_is_passed_over_while_there_is_no_room_to_set_it_aside(
    buffer: PushBuffer, store: Store, replayer: Replayer
) -> None:
    in_the_way = buffer.directory / "set-aside"
    in_the_way.write_text("a file where the directory should be")
    bad = Push([PushItem("q", b'"bad"', "p", priority=3)])
    await buffer.append("m", [push_of("1"), bad])
    await fill(buffer, "2")
    for _ in range(3):
        with pytest.raises(BufferWriteError):
            await replay_all(replayer, buffer)
    in_the_way.unlink()
    await replay_all(replayer, buffer)
    assert await stored(store) == ["1", "2"]
    assert reasons(buffer.directory) == [("invalid_request", "bad")]
