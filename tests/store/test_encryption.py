"""Encryption at rest: unreadable in the file and the tables; without the key nothing is leased."""

import pytest

from monarq.clock import ManualClock
from monarq.errors import EncryptionKeyError, InvalidRequestError, TransactionFailedError
from monarq.model import Ack, DeadLetterFilter, Pop, Push, PushItem, QueueKind
from monarq.store import Store, open_store
from tests.store.at_rest import bytes_at_rest, holds
from tests.store.calls import ack, code_of, next_items, pop, pop_one, push, push_many, transaction
from tests.store.conftest import KEY, OpenStore, Place
from tests.store.scenarios import (
    DEAD,
    EVERY_DEAD_LETTER,
    ORDERED,
    WORK,
    dead_letters,
    drain,
    every,
    nothing_changes,
    stored_payloads,
)

pytestmark = pytest.mark.smoke

OTHER_KEY = bytes(range(100, 132))
SECRET = b'"a-secret-that-nobody-may-read"'
PLAIN = b'"a-text-that-everybody-may-read"'


async def encrypted(store: Store) -> None:
    """An ordered queue `q` and a work queue `w`."""
    await store.configure("q", options={"encryptionEnabled": True})
    await store.configure("w", kind=WORK, options={"encryptionEnabled": True})


async def test_sealed_payloads_cannot_be_read_in_the_file_or_the_tables(
    store: Store, open_another: OpenStore, place: Place
) -> None:
    """The plain queue proves that the search would find it."""
    other = await open_another()
    await encrypted(store)
    await push(store, "plain", PLAIN)
    for queue in ("q", "w"):
        for _ in range(3):
            await push(store, queue, SECRET)
        message, lease = await pop_one(store, queue)
        assert message.payload == SECRET
        await ack(store, message, lease, DEAD)
        assert [m.payload for m in await drain(other, queue)] == [SECRET] * 2
    assert len(await dead_letters(store)) == 2
    at_rest = await bytes_at_rest(place)
    assert holds(at_rest, PLAIN)
    assert not holds(at_rest, SECRET)


async def test_a_store_that_knew_the_queue_before_it_was_encrypted_seals_too(
    store: Store, open_another: OpenStore, place: Place
) -> None:
    other = await open_another()
    await store.configure("w", kind=WORK)
    for queue in ("q", "w"):
        await push(other, queue, PLAIN)
    await encrypted(store)
    for queue in ("q", "w"):
        await push(other, queue, SECRET)
    at_rest = await bytes_at_rest(place)
    assert holds(at_rest, PLAIN)
    assert not holds(at_rest, SECRET)


async def test_payloads_come_back_as_pushed_in_every_view(store: Store) -> None:
    await encrypted(store)
    answer = await push(store, "q", SECRET)
    item = await push(store, "w", SECRET)
    assert await stored_payloads(store, "q") == [SECRET]
    assert (await store.get_message(answer.partition_id, answer.transaction_id)).payload == SECRET
    assert (await store.get_item(item.message_id)).payload == SECRET
    [found] = (await store.list_items("w", transaction_id=item.transaction_id)).rows
    assert found.payload == SECRET
    assert [row.payload for row in await every(store.list_items, "w")] == [SECRET]
    assert [row.payload for row in await next_items(store, "w")] == [SECRET]
    [segment] = await store.export_read(answer.partition_id, 1, 1)
    assert segment.data == SECRET
    message, lease = await pop_one(store, "q")
    await ack(store, message, lease, DEAD)
    assert [letter.payload for letter in await dead_letters(store)] == [SECRET]
    await store.redrive(queue="q")
    assert [m.payload for m in await drain(store, "q")] == [SECRET]


async def test_encryption_cannot_be_switched_on_without_a_key() -> None:
    async with await open_store("memory:", clock=ManualClock()) as keyless:
        await keyless.configure("q")
        async with nothing_changes(keyless):
            with pytest.raises(EncryptionKeyError):
                await keyless.configure("q", options={"encryptionEnabled": True})
            with pytest.raises(EncryptionKeyError):
                await keyless.configure("new", options={"encryptionEnabled": True})
        await push(keyless, "q", PLAIN)
        assert await stored_payloads(keyless, "q") == [PLAIN]


async def test_a_store_without_the_key_refuses_to_switch_it_on(
    store: Store, open_another: OpenStore
) -> None:
    keyless = await open_another(keys=[])
    async with nothing_changes(store):
        with pytest.raises(EncryptionKeyError):
            await keyless.configure("q", options={"encryptionEnabled": True})


async def test_without_the_key_a_push_to_an_encrypted_queue_is_refused_not_stored_plain(
    store: Store, open_another: OpenStore
) -> None:
    await encrypted(store)
    keyless = await open_another(keys=[])
    async with nothing_changes(store):
        for queue in ("q", "w"):
            with pytest.raises(EncryptionKeyError):
                await push(keyless, queue, SECRET)
        with pytest.raises(TransactionFailedError) as caught:
            await transaction(keyless, Push([PushItem("q", SECRET)]))
        assert caught.value.cause.code == "encryption_key"
    outcomes = await keyless.push([Push([PushItem("q", SECRET)]), Push([PushItem("plain", PLAIN)])])
    assert [code_of(outcome) for outcome in outcomes] == ["encryption_key", None]


@pytest.mark.parametrize("keys", [[], [OTHER_KEY]], ids=["no key", "wrong key"])
async def test_without_the_right_key_a_pop_is_a_clear_error_and_leases_nothing(
    store: Store, open_another: OpenStore, keys: list[bytes]
) -> None:
    await encrypted(store)
    for queue in ("q", "w"):
        await push(store, queue, SECRET)
    await push(store, "plain", PLAIN)
    blind = await open_another(keys=keys)
    for queue in ("q", "w"):
        with pytest.raises(EncryptionKeyError, match="key"):
            await pop(blind, queue)
        with pytest.raises(EncryptionKeyError):
            await pop(blind, queue, auto_ack=True)
    [item] = await every(store.list_items, "w")
    assert (item.state, item.attempts) == ("ready", 0)
    [message] = (await pop(blind, "plain")).messages
    assert message.payload == PLAIN
    for queue in ("q", "w"):
        [message] = (await pop(store, queue)).messages
        assert (message.payload, message.attempts) == (SECRET, 1)


@pytest.mark.parametrize("keys", [[], [OTHER_KEY]], ids=["no key", "wrong key"])
async def test_without_the_right_key_no_view_shows_a_payload_or_crashes(
    store: Store, open_another: OpenStore, keys: list[bytes]
) -> None:
    await encrypted(store)
    answer = await push(store, "q", SECRET)
    item = await push(store, "w", SECRET)
    message, lease = await pop_one(store, "q")
    await ack(store, message, lease, DEAD)
    blind = await open_another(keys=keys)
    for call in (
        lambda: blind.list_messages("q"),
        lambda: blind.get_message(answer.partition_id, answer.transaction_id),
        lambda: blind.export_read(answer.partition_id, 1, 1),
        lambda: blind.list_items("w"),
        lambda: blind.list_items("w", order="next"),
        lambda: blind.get_item(item.message_id),
        lambda: blind.list_items("w", transaction_id=item.transaction_id),
        lambda: blind.list_dead_letters(EVERY_DEAD_LETTER),
    ):
        with pytest.raises(EncryptionKeyError):
            await call()


async def test_a_bad_pop_of_one_queue_does_not_hurt_the_others_of_its_call(
    store: Store, open_another: OpenStore
) -> None:
    await encrypted(store)
    await push(store, "q", SECRET)
    await push(store, "plain", PLAIN)
    blind = await open_another(keys=[OTHER_KEY])
    outcomes = await blind.pop([Pop(queue="q"), Pop(queue="plain"), Pop(queue="q")])
    assert [code_of(outcome) for outcome in outcomes] == [
        "encryption_key",
        None,
        "encryption_key",
    ]


async def test_after_a_rotation_old_and_new_messages_are_read_and_new_ones_use_the_new_key(
    store: Store, open_another: OpenStore
) -> None:
    await encrypted(store)
    await push(store, "q", b'"old"')
    rotated = await open_another(keys=[OTHER_KEY, KEY])
    await push(rotated, "q", b'"new"')
    assert await stored_payloads(rotated, "q") == [b'"old"', b'"new"']
    new_only = await open_another(keys=[OTHER_KEY])
    with pytest.raises(EncryptionKeyError):
        await pop(new_only, "q", 1)
    popped = await pop(store, "q", 1)
    await ack(store, popped.messages[0], popped.lease_id)
    assert [m.payload for m in await drain(new_only, "q", 1)] == [b'"new"']


async def test_a_queue_switched_over_reads_both_and_seals_only_what_comes_after(
    store: Store, open_another: OpenStore
) -> None:
    await push(store, "q", b'"before"')
    await store.configure("q", options={"encryptionEnabled": True})
    await push(store, "q", b'"during"')
    await store.configure("q", options={"encryptionEnabled": False})
    await push(store, "q", b'"after"')
    keyless = await open_another(keys=[])
    popped = await pop(store, "q", 10)
    assert [m.payload for m in popped.messages] == [b'"before"', b'"during"', b'"after"']
    assert await stored_payloads(keyless, "q", first_seq=3) == [b'"after"']
    with pytest.raises(EncryptionKeyError):
        await stored_payloads(keyless, "q")


async def test_what_dies_into_a_plain_dead_queue_stays_sealed_and_readable_with_the_key(
    store: Store, open_another: OpenStore, place: Place
) -> None:
    for kind, queue, grave in ((None, "q", "grave"), (WORK, "w", "pit")):
        await store.configure(grave, kind=kind)
        await store.configure(
            queue, kind=kind, options={"encryptionEnabled": True, "deadQueue": grave}
        )
        await push(store, queue, SECRET)
        message, lease = await pop_one(store, queue)
        await ack(store, message, lease, DEAD)
        assert [m.payload for m in (await pop(store, grave)).messages] == [SECRET]
    assert not holds(await bytes_at_rest(place), SECRET)
    keyless = await open_another(keys=[])
    with pytest.raises(EncryptionKeyError):
        await stored_payloads(keyless, "grave")


async def test_the_dead_of_an_encrypted_queue_can_be_purged_and_acked_without_the_key(
    store: Store, open_another: OpenStore
) -> None:
    await encrypted(store)
    await push_many(store, "q", 2)
    popped = await pop(store, "q", 2)
    keyless = await open_another(keys=[])
    await ack(keyless, popped.messages[0], popped.lease_id, DEAD)
    await keyless.ack([Ack(lease_id=popped.lease_id)])
    assert await keyless.count_dead_letters(EVERY_DEAD_LETTER) == 1
    assert await keyless.purge_dead_letters(all=True) == 1


async def test_dedupe_and_redrive_work_on_sealed_messages(store: Store) -> None:
    await encrypted(store)
    await push(store, "q", SECRET, transaction_id="t")
    assert (await push(store, "q", SECRET, transaction_id="t")).status == "duplicate"
    await store.configure("plain")
    message, lease = await pop_one(store, "q")
    await ack(store, message, lease, DEAD)
    assert await store.redrive(queue="q", to_queue="plain") == 1
    assert [m.payload for m in await drain(store, "plain")] == [SECRET]


async def test_a_plain_message_that_dies_or_is_redriven_into_an_encrypted_queue_is_sealed(
    store: Store, open_another: OpenStore, place: Place
) -> None:
    await encrypted(store)
    keyless = await open_another(keys=[])
    for source, target in (("plain", "q"), ("plain work", "w")):
        kind = WORK if target == "w" else None
        await store.configure(source, kind=kind)
        await push(store, source, PLAIN)
        message, lease = await pop_one(store, source)
        await ack(store, message, lease, DEAD)
        with pytest.raises(EncryptionKeyError):
            await keyless.redrive(queue=source, to_queue=target)
        assert await store.count_dead_letters(DeadLetterFilter(queue=source)) == 1
        assert await store.redrive(queue=source, to_queue=target) == 1
        await store.delete_queue(source)
        assert [m.payload for m in (await pop(store, target)).messages] == [PLAIN]
        with pytest.raises(EncryptionKeyError):
            await (keyless.list_items(target) if kind else keyless.list_messages(target))


@pytest.mark.parametrize("kind", [ORDERED, WORK])
async def test_a_plain_queue_may_not_have_an_encrypted_dead_queue_however_it_is_brought_about(
    store: Store, kind: QueueKind
) -> None:
    """The move happens inside the database, which has no key: it would lie there in the clear."""
    await store.configure("sealed", kind=kind, options={"encryptionEnabled": True})
    await store.configure("open", kind=kind)
    await store.configure("plain", kind=kind, options={"deadQueue": "open"})
    await store.configure(
        "both", kind=kind, options={"encryptionEnabled": True, "deadQueue": "sealed"}
    )
    async with nothing_changes(store):
        for name, options in (
            ("plain", {"deadQueue": "sealed"}),
            ("new", {"deadQueue": "sealed"}),
            ("open", {"encryptionEnabled": True}),
            ("both", {"encryptionEnabled": False}),
        ):
            with pytest.raises(InvalidRequestError):
                await store.configure(name, kind=kind, options=options)
    await store.configure("plain", options={"encryptionEnabled": True, "deadQueue": "sealed"})
    await store.configure("both", options={"encryptionEnabled": False, "deadQueue": "open"})
    await store.configure("both", options={"deadQueue": ""})
    await store.configure("open", options={"encryptionEnabled": True})
