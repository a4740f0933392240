"""Records beside the queues, and what running attempts print."""

import asyncio

import pytest

from monarq.clock import ManualClock
from monarq.errors import InvalidRequestError, NotFoundError
from monarq.model import MAX_OUTPUT_BYTES, QueueKind
from monarq.store import Store
from tests.store.calls import pop, push
from tests.store.conftest import OpenStore

pytestmark = pytest.mark.smoke

WEEK = 7 * 86_400


async def push_item(store: Store) -> str:
    await store.configure("work", kind=QueueKind.WORK)
    return (await push(store, "work")).message_id


class TestRecords:
    async def test_one_is_found_by_its_name(self, store: Store, clock: ManualClock) -> None:
        await store.put_record("worker", "w-1", b'{"pid":1}')
        record = await store.get_record("worker", "w-1")
        assert (record.value, record.updated_at) == (b'{"pid":1}', clock.now())

    async def test_one_that_is_not_there_is_not_found(self, store: Store) -> None:
        await store.put_record("worker", "w-1", b"1")
        with pytest.raises(NotFoundError, match="no schedule 'w-1'"):
            await store.get_record("schedule", "w-1")

    async def test_putting_it_again_replaces_it(self, store: Store) -> None:
        await store.put_record("worker", "w-1", b"1", keep_seconds=5)
        await store.put_record("worker", "w-1", b"2")
        record = await store.get_record("worker", "w-1")
        assert (record.value, record.expires_at) == (b"2", None)

    async def test_one_that_is_there_stays_if_only_a_new_one_is_to_be_put(
        self, store: Store, clock: ManualClock
    ) -> None:
        made = await store.put_record("worker", "w-1", b"1", keep_seconds=10, only_new=True)
        clock.advance(5)
        again = await store.put_record("worker", "w-1", b"2", only_new=True)
        assert again == made == await store.get_record("worker", "w-1")
        clock.advance(5)
        later = await store.put_record("worker", "w-1", b"3", only_new=True)
        assert (later.value, later.updated_at, later.expires_at) == (b"3", clock.now(), None)
        assert later == await store.get_record("worker", "w-1")

    async def test_of_many_new_ones_at_once_all_are_told_of_the_same(
        self, store: Store, open_another: OpenStore
    ) -> None:
        stores = [store, await open_another(), await open_another()]
        for key in ("a", "b", "c"):
            put = await asyncio.gather(
                *(
                    each.put_record("worker", key, b"%d" % n, only_new=True)
                    for n, each in enumerate(3 * stores)
                )
            )
            assert put == [await store.get_record("worker", key)] * 9

    async def test_they_are_listed_by_kind_and_key_page_by_page(self, store: Store) -> None:
        for key in ("c", "a", "é", "b"):
            await store.put_record("worker", key, b"1")
        await store.put_record("other", "x", b"0")
        first = await store.list_records("worker", limit=2)
        second = await store.list_records("worker", limit=2, after=first.next)
        assert [record.key for record in (*first.rows, *second.rows)] == ["a", "b", "c", "é"]

    async def test_one_whose_time_is_over_is_gone(self, store: Store, clock: ManualClock) -> None:
        await store.put_record("worker", "w-1", b"1", keep_seconds=10)
        clock.advance(9.9)
        assert await store.get_record("worker", "w-1")
        clock.advance(0.1)
        with pytest.raises(NotFoundError):
            await store.get_record("worker", "w-1")
        assert (await store.list_records("worker")).rows == []
        assert not await store.delete_record("worker", "w-1")

    async def test_the_lifecycle_removes_what_is_gone(
        self, store: Store, clock: ManualClock
    ) -> None:
        await store.put_record("worker", "old", b"1", keep_seconds=10)
        await store.put_record("worker", "kept", b"1")
        clock.advance(11)
        assert (await store.lifecycle()).removed == 1
        assert (await store.lifecycle()).removed == 0
        assert [record.key for record in (await store.list_records("worker")).rows] == ["kept"]

    async def test_deleting_says_whether_there_was_one(self, store: Store) -> None:
        await store.put_record("worker", "w-1", b"1")
        assert await store.delete_record("worker", "w-1")
        assert not await store.delete_record("worker", "w-1")

    @pytest.mark.parametrize(
        ("kind", "key"), [("", "a"), ("a", ""), ("a", "b\0"), ("a" * 256, "a")]
    )
    async def test_a_bad_name_is_refused(self, store: Store, kind: str, key: str) -> None:
        with pytest.raises(InvalidRequestError):
            await store.put_record(kind, key, b"1")


class TestOutput:
    async def test_it_is_read_as_it_comes(self, store: Store) -> None:
        item = await push_item(store)
        assert await store.append_output(item, 1, b"hello ") == 6
        first = await store.read_output(item, 1)
        assert await store.append_output(item, 1, b"world") == 11
        second = await store.read_output(item, 1, start=first.next)
        assert (first.data, second.data, second.next) == (b"hello ", b"world", 11)
        assert (await store.read_output(item, 1, start=11)).data == b""

    async def test_it_may_be_read_from_any_byte_in_parts_of_any_size(self, store: Store) -> None:
        item = await push_item(store)
        for part in (b"abc", b"", b"defg", b"h"):
            await store.append_output(item, 1, part)
        read, at = b"", 1
        while part := await store.read_output(item, 1, start=at, max_bytes=2):
            if not part.data:
                break
            assert len(part.data) <= 2
            read, at = read + part.data, part.next
        assert read == b"bcdefgh"

    async def test_each_attempt_has_its_own(self, store: Store) -> None:
        item = await push_item(store)
        await store.append_output(item, 1, b"one")
        await store.append_output(item, 2, b"two")
        assert (await store.read_output(item, 2)).data == b"two"

    async def test_too_much_is_refused_and_what_was_there_stays(self, store: Store) -> None:
        item = await push_item(store)
        await store.append_output(item, 1, b"x" * (MAX_OUTPUT_BYTES - 1))
        with pytest.raises(InvalidRequestError, match="has printed"):
            await store.append_output(item, 1, b"yz")
        assert await store.append_output(item, 1, b"y") == MAX_OUTPUT_BYTES

    async def test_many_at_once_overwrite_nothing(self, store: Store) -> None:
        item = await push_item(store)
        parts = [f"{number:03}".encode() for number in range(50)]
        await asyncio.gather(*(store.append_output(item, 1, part) for part in parts))
        data = (await store.read_output(item, 1)).data
        assert sorted(data[at : at + 3] for at in range(0, len(data), 3)) == parts

    async def test_of_an_item_that_is_not_there_it_is_refused(self, store: Store) -> None:
        with pytest.raises(NotFoundError):
            await store.append_output("1-1", 1, b"x")
        with pytest.raises(InvalidRequestError):
            await store.append_output("job", 1, b"x")

    async def test_it_stays_a_week_also_when_the_item_is_done(
        self, store: Store, clock: ManualClock
    ) -> None:
        item = await push_item(store)
        await store.append_output(item, 1, b"x")
        await pop(store, "work", auto_ack=True)
        clock.advance(WEEK - 1)
        await store.lifecycle()
        assert (await store.read_output(item, 1)).data == b"x"
        clock.advance(1)
        await store.lifecycle()
        assert (await store.read_output(item, 1)).data == b""
