"""Sealed values are bound to their place: what was moved or exchanged by SQL is noticed, and what
the store itself moves stays readable."""

import pytest

from monarq.errors import EncryptionKeyError
from monarq.model import DEFAULT_GROUP, QueueKind
from monarq.store import Store
from tests.store.at_rest import run_sql, sealed_without_place, swap
from tests.store.calls import ack, pop, pop_one, push, push_many
from tests.store.conftest import KEY, OpenStore, Place
from tests.store.scenarios import (
    DEAD,
    EVERY_DEAD_LETTER,
    ORDERED,
    WORK,
    dead_letters,
    drain,
    every,
    stored_payloads,
    visible_state,
)

BOTH = pytest.mark.parametrize("kind", [ORDERED, WORK])
SEALING = {"encryptionEnabled": True}


async def refuses_to_pop(store: Store, queue: str) -> None:
    before = await store.get_queue(queue)
    for auto_ack in (False, True):
        with pytest.raises(EncryptionKeyError, match="changed after it was encrypted, or moved"):
            await pop(store, queue, 10, auto_ack=auto_ack)
    assert await store.get_queue(queue) == before
    [cursor] = (await store.list_cursors(queue, DEFAULT_GROUP)).rows
    assert (cursor.lease_until, cursor.position) == (None, 0)


async def test_messages_with_exchanged_payloads_are_refused_and_not_leased(
    store: Store, open_another: OpenStore, place: Place
) -> None:
    await store.configure("q", options=SEALING)
    await pop(store, "q")
    for name in ("a", "b"):
        await push(store, "q", f'"{name}"'.encode(), transaction_id=name)
    first = "last_seq = 1" if not place.is_postgres else "first_seq = 1"
    await swap(place, "segments", "data", first, first.replace("1", "2"))
    other = await open_another()
    await refuses_to_pop(other, "q")
    for call in (
        lambda: other.list_messages("q"),
        lambda: other.export_read(1, 1, 2),
        lambda: other.export_messages([(1, 1, 2)], ["payload"]),
    ):
        with pytest.raises(EncryptionKeyError, match="moved"):
            await call()
    await swap(place, "segments", "data", first, first.replace("1", "2"))
    again = await open_another()
    assert [m.payload for m in (await pop(again, "q", 10)).messages] == [b'"a"', b'"b"']


async def test_items_with_exchanged_payloads_are_refused_and_not_leased(
    store: Store, open_another: OpenStore, place: Place
) -> None:
    await store.configure("w", kind=WORK, options=SEALING)
    for name in ("a", "b"):
        await push(store, "w", f'"{name}"'.encode(), transaction_id=name)
    await swap(place, "items", "payload", "seq = 1", "seq = 2")
    state = await store.get_queue("w")
    for auto_ack in (False, True):
        with pytest.raises(EncryptionKeyError, match="moved"):
            await pop(store, "w", 10, auto_ack=auto_ack)
    assert await store.get_queue("w") == state
    with pytest.raises(EncryptionKeyError, match="moved"):
        await store.list_items("w")


@pytest.mark.parametrize("where", ["queue", "partition"])
async def test_messages_without_ids_of_their_own_are_bound_to_queue_and_partition(
    store: Store, open_another: OpenStore, place: Place, where: str
) -> None:
    for queue in ("q", "other"):
        await store.configure(queue, options=SEALING)
    first = await push(store, "q", b'"a"', partition="p")
    elsewhere = {"queue": ("other", "p"), "partition": ("q", "p2")}[where]
    second = await push(store, elsewhere[0], b'"b"', partition=elsewhere[1])
    await swap(
        place,
        "segments",
        "data",
        f"partition_id = {first.partition_id}",
        f"partition_id = {second.partition_id}",
    )
    other = await open_another()
    with pytest.raises(EncryptionKeyError, match="moved"):
        await pop(other, "q", partition="p")
    with pytest.raises(EncryptionKeyError, match="moved"):
        await pop(other, elsewhere[0], partition=elsewhere[1])


async def test_dead_letters_with_exchanged_payloads_are_refused(
    store: Store, open_another: OpenStore, place: Place
) -> None:
    await store.configure("q", options=SEALING)
    for name in ("a", "b"):
        await push(store, "q", f'"{name}"'.encode(), transaction_id=name)
        message, lease = await pop_one(store, "q")
        await ack(store, message, lease, DEAD)
    await swap(place, "dead_letters", "payload", "seq = 1", "seq = 2")
    with pytest.raises(EncryptionKeyError, match="moved"):
        await store.list_dead_letters(EVERY_DEAD_LETTER)
    before = await store.count_dead_letters(EVERY_DEAD_LETTER)
    with pytest.raises(EncryptionKeyError, match="moved"):
        await store.redrive(all=True)
    assert await store.count_dead_letters(EVERY_DEAD_LETTER) == before


@BOTH
@pytest.mark.parametrize("given", [None, "own", "2026-11", "9-9"])
async def test_payloads_stay_readable_on_every_way_that_the_store_moves_them(
    store: Store, kind: QueueKind, given: str | None
) -> None:
    """To the dead queue, from its dead letters back, to another queue, to its dead queue."""
    for name in ("grave", "pit"):
        await store.configure(name, kind=kind, options=SEALING)
    await store.configure("q", kind=kind, options={**SEALING, "deadQueue": "grave"})
    await store.configure("r", kind=kind, options={**SEALING, "deadQueue": "pit"})
    await store.configure("plain", kind=kind)
    await push(store, "q", b'"x"', transaction_id=given, headers=b'{"mine": 1}')

    async def dies(queue: str) -> None:
        message, lease = await pop_one(store, queue)
        assert message.payload == b'"x"'
        await ack(store, message, lease, DEAD, error="e")

    async def looks(queue: str) -> None:
        rows = await every(store.list_items if kind is WORK else store.list_messages, queue)
        assert rows[-1].payload == b'"x"'

    await dies("q")
    await looks("grave")
    await dies("grave")
    assert [letter.payload for letter in await dead_letters(store)] == [b'"x"']
    await store.redrive(queue="grave")
    await looks("grave")
    await dies("grave")
    await store.redrive(queue="grave", to_queue="r")
    await looks("r")
    await dies("r")
    await looks("pit")
    await dies("pit")
    await store.redrive(queue="pit", to_queue="plain")
    await looks("plain")
    await dies("plain")
    await store.redrive(queue="plain")
    assert [m.payload for m in (await pop(store, "plain")).messages] == [b'"x"']


async def test_a_message_with_an_id_that_its_dead_queue_cannot_keep_stays_readable(
    store: Store,
) -> None:
    """It was copied back from the dead queue by hand, under the id that it had there."""
    await store.configure("grave", options=SEALING)
    await store.configure("q", options={**SEALING, "deadQueue": "grave"})
    first = await push(store, "grave", b"0")
    await push(store, "q", b'"x"', transaction_id=f"{first.partition_id}-1")
    message, lease = await pop_one(store, "q")
    await ack(store, message, lease, DEAD)
    assert await stored_payloads(store, "grave") == [b"0", b'"x"']


@BOTH
async def test_a_message_that_claims_another_origin_than_its_own_is_refused(
    store: Store, open_another: OpenStore, place: Place, kind: QueueKind
) -> None:
    await store.configure("grave", kind=kind, options=SEALING)
    await store.configure("other", kind=kind, options=SEALING)
    await store.configure("q", kind=kind, options={**SEALING, "deadQueue": "grave"})
    await push(store, "q", b'"x"')
    message, lease = await pop_one(store, "q")
    await ack(store, message, lease, DEAD)
    table = "items" if kind is WORK else "segments"
    [(queue_id,)] = await run_sql(place, "select id from queues where name = 'grave'")
    condition = f"partition_id in (select id from partitions where queue_id = {queue_id})"
    if kind is WORK or not place.is_postgres:
        [(kept,)] = await run_sql(place, f"select headers from {table} where {condition}")
        changed = kept.replace(b'"q"', b'"r"') if isinstance(kept, bytes) else kept
        if isinstance(kept, str):
            changed = kept.replace('"q"', '"r"')
        await run_sql(place, f"update {table} set headers = ? where {condition}", changed)
    else:
        await run_sql(
            place,
            f"update {table} set headers = array[replace(headers[1], '\"q\"', '\"r\"')] "
            f"where {condition}",
        )
    other = await open_another()
    with pytest.raises(EncryptionKeyError, match="moved"):
        await pop(other, "grave")


@BOTH
async def test_payloads_that_were_sealed_before_they_were_bound_are_read_moved_and_bound(
    store: Store, open_another: OpenStore, place: Place, kind: QueueKind
) -> None:
    await store.configure("q", kind=kind, options=SEALING)
    await push(store, "q", b'"x"')
    table, column = ("items", "payload") if kind is WORK else ("segments", "data")
    await run_sql(place, f"update {table} set {column} = ?", sealed_without_place(KEY, b'"x"'))
    other = await open_another()
    message, lease = await pop_one(other, "q")
    assert message.payload == b'"x"'
    await ack(other, message, lease, DEAD)
    assert [letter.payload for letter in await dead_letters(other)] == [b'"x"']
    await other.configure("r", kind=kind)
    await other.redrive(all=True, to_queue="r")
    assert [m.payload for m in await drain(other, "r")] == [b'"x"']
    [(stored,)] = await run_sql(
        place, f"select {column} from {table} order by partition_id desc limit 1"
    )
    assert stored[0] == 2


async def test_a_dead_letter_cannot_be_redriven_without_the_key_and_stays(
    store: Store, open_another: OpenStore
) -> None:
    await store.configure("q", options=SEALING)
    await push(store, "q", b'"x"')
    message, lease = await pop_one(store, "q")
    await ack(store, message, lease, DEAD)
    keyless = await open_another(keys=[])
    before = await visible_state(store)
    with pytest.raises(EncryptionKeyError):
        await keyless.redrive(all=True)
    assert await visible_state(store) == before
    assert await store.redrive(all=True) == 1


async def test_many_messages_of_one_push_are_read_in_every_mixture(store: Store) -> None:
    """With ids of their own and without, with headers and without, in segments of many."""
    await store.configure("q", options=SEALING)
    await push_many(store, "q", 3)
    for n in range(40):
        extra = {"headers": b'{"n": 1}'} if n % 3 == 0 else {}
        await push(store, "q", b"%d" % n, transaction_id=f"t{n}" if n % 2 else None, **extra)
    plain = [b"1", b"2", b"3", *(b"%d" % n for n in range(40))]
    assert await stored_payloads(store, "q") == plain
    segments = await store.export_messages([(1, 1, 43)], ["payload"])
    assert b"".join(segment.data or b"" for segment in segments.segments) == b"".join(plain)
    assert [m.payload for m in await drain(store, "q", 7)] == plain
