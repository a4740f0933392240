"""Errors, results, outputs and traces of encrypted queues: unreadable at rest, readable with the
key, in every place where they are shown."""

import json

import pytest

from monarq.crypto import Cipher
from monarq.errors import EncryptionKeyError
from monarq.model import (
    DEFAULT_GROUP,
    Ack,
    AckStatus,
    DeadLetterFilter,
    Popped,
    Push,
    PushItem,
    QueueKind,
)
from monarq.store import Store
from monarq.store.sealing import error_context
from tests.store.at_rest import bytes_at_rest, holds, run_sql
from tests.store.calls import ack, ack_all, code_of, pop, pop_one, push
from tests.store.conftest import KEY, OpenStore, Place
from tests.store.scenarios import (
    COMPLETED,
    DEAD,
    FAILED,
    ORDERED,
    WORK,
    dead_letters,
    every,
    headers_of,
    nothing_changes,
)
from tests.store.sealed_scene import (
    ERROR,
    KIND_OF_ERROR,
    MARKERS,
    OTHER_KEY,
    OUTPUT,
    RESULT,
    TRACE,
    answer_in_every_way,
    two_queues,
)

pytestmark = pytest.mark.smoke


@pytest.mark.parametrize("encrypted", [True, False])
async def test_no_text_of_a_caller_lies_in_the_clear_in_an_encrypted_queue(
    store: Store, open_another: OpenStore, place: Place, encrypted: bool
) -> None:
    """The plain queues prove that the search would find them."""
    await two_queues(store, encrypted=encrypted)
    await answer_in_every_way(store)
    at_rest = await bytes_at_rest(place)
    assert [holds(at_rest, marker) for marker in MARKERS] == [not encrypted] * 4


@pytest.mark.parametrize("encrypted", [True, False])
async def test_every_view_shows_errors_results_outputs_and_traces_as_they_were_given(
    store: Store, encrypted: bool
) -> None:
    await two_queues(store, encrypted=encrypted)
    traced = await answer_in_every_way(store)
    attempts = await every(store.list_attempts, queue="w")
    assert {(one.error, one.result) for one in attempts} == {(ERROR, RESULT), (None, RESULT)}
    deliveries = await every(store.list_deliveries, queue="q")
    assert {one.error for one in deliveries if one.error is not None} == {ERROR}
    letters = await dead_letters(store)
    assert {one.error for one in letters} == {ERROR}
    items = await every(store.list_items, "w")
    assert {one.error for one in items if one.error is not None} == {ERROR}
    done = items[0]
    assert (await store.get_item(f"{done.partition_id}-{done.seq}")).history[0].result == RESULT
    output = await store.read_output(f"{done.partition_id}-{done.seq}", 1)
    assert (output.data, output.next) == (OUTPUT, len(OUTPUT))
    [trace] = await every(
        store.list_traces, partition_id=traced.partition_id, transaction_id=traced.transaction_id
    )
    assert trace.data == TRACE


async def test_exported_rows_show_errors_and_results_as_they_were_given(store: Store) -> None:
    await two_queues(store)
    await answer_in_every_way(store)
    for columns in (["error"], ["result", "error"], ["queue", "error", "outcome"]):
        rows = (await store.export_rows("attempts", columns)).rows
        errors = {row[columns.index("error")] for row in rows}
        assert {e.decode() if isinstance(e, bytes) else e for e in errors} == {ERROR, None}
        if "result" in columns:
            assert {bytes(row[0]) for row in rows} == {RESULT}
    rows = (await store.export_rows("dead_letters", ["payload", "error"])).rows
    assert {bytes(row[0]) for row in rows} <= {b"%d" % n for n in range(7)}
    rows = (await store.export_rows("items", ["error", "payload", "queue"])).rows
    assert {bytes(row[1]) for row in rows} <= {b"%d" % n for n in range(7)}


async def test_a_failing_message_shows_its_error_to_who_looks_at_its_group(store: Store) -> None:
    await two_queues(store)
    await push(store, "q")
    message, lease = await pop_one(store, "q")
    await ack(store, message, lease, FAILED, error=ERROR)
    [standing] = await store.list_failing("q", DEFAULT_GROUP)
    assert standing.error == ERROR


async def test_errors_are_grouped_and_found_by_their_first_line_across_keys_and_plain_ones(
    store: Store, open_another: OpenStore
) -> None:
    await store.configure("q")
    rotated = await open_another(keys=[OTHER_KEY, KEY])
    for n, where in enumerate((store, store, rotated, rotated)):
        if n == 1:
            await store.configure("q", options={"encryptionEnabled": True})
        await push(where, "q")
        message, lease = await pop_one(where, "q")
        await ack(where, message, lease, DEAD, error=f"{KIND_OF_ERROR}\nattempt {n}")
    await push(rotated, "q")
    message, lease = await pop_one(rotated, "q")
    await ack(rotated, message, lease, DEAD, error="another")
    found = await rotated.dead_letter_errors(DeadLetterFilter())
    assert [(row.error, row.count) for row in found] == [(KIND_OF_ERROR, 4), ("another", 1)]
    which = DeadLetterFilter(error=KIND_OF_ERROR)
    assert len(await dead_letters(rotated, error=KIND_OF_ERROR)) == 4
    assert await rotated.count_dead_letters(which) == 4
    assert await rotated.purge_dead_letters(error=KIND_OF_ERROR) == 4
    assert [letter.error for letter in await dead_letters(rotated)] == ["another"]


@pytest.mark.parametrize("kind", [ORDERED, WORK])
async def test_the_headers_of_a_message_in_a_dead_queue_hide_its_error_at_rest_only(
    store: Store, open_another: OpenStore, place: Place, kind: QueueKind
) -> None:
    await store.configure("grave", kind=kind, options={"encryptionEnabled": True})
    await store.configure("q", kind=kind, options={"encryptionEnabled": True, "deadQueue": "grave"})
    pushed = await push(store, "q", transaction_id="t", headers=b'{"mine": 1}')
    message, lease = await pop_one(store, "q")
    await ack(store, message, lease, DEAD, error=ERROR)
    assert not holds(await bytes_at_rest(place), MARKERS[0])
    if kind is ORDERED:
        [kept] = await every(store.list_messages, "grave")
        assert headers_of(kept)["monarqDeadError"] == ERROR
        [segment] = await store.export_read(kept.partition_id, 1, 1)
        assert segment.headers is not None
        assert segment.headers[0] is not None
        assert json.loads(segment.headers[0])["monarqDeadError"] == ERROR
    [message] = (await pop(store, "grave")).messages
    headers = headers_of(message)
    assert headers["monarqDeadError"] == ERROR
    assert (headers["monarqDeadFrom"], headers["mine"]) == ("q", 1)
    assert message.transaction_id == pushed.transaction_id


@pytest.mark.parametrize("encrypted", [True, False])
async def test_no_error_of_a_caller_is_taken_for_a_sealed_one(
    store: Store, encrypted: bool
) -> None:
    """Neither one that only looks sealed, nor one that was copied from the store."""
    await two_queues(store, encrypted=encrypted)
    copied = Cipher([KEY]).seal_text("stolen", error_context("q"))
    for n, forged in enumerate(("\x02", "\x02" * 30, "\x02abc\nAgM=", copied)):
        await push(store, "q")
        message, lease = await pop_one(store, "q")
        await ack(store, message, lease, DEAD, error=forged)
        await push(store, "w")
        item, lease = await pop_one(store, "w")
        await ack(store, item, lease, DEAD, error=forged)
        letters = await dead_letters(store)
        assert len(letters) == 2 * (n + 1)
        shown = forged if encrypted else f"\ufffd{forged[1:]}"
        assert [letter.error for letter in letters[:2]] == [shown] * 2


async def test_headers_of_a_caller_that_look_like_those_of_a_dead_message_break_nothing(
    store: Store,
) -> None:
    forged = json.dumps({"monarqDeadFrom": "q", "monarqDeadError": "\x02zzz"}).encode()
    await two_queues(store)
    for queue in ("q", "w", "plain"):
        await push(store, queue, b'"mine"', headers=forged)
        [message] = (await pop(store, queue)).messages
        assert message.payload == b'"mine"'
        assert headers_of(message)["monarqDeadError"] == "\x02zzz"


async def test_output_of_an_encrypted_queue_is_read_and_limited_by_its_plain_bytes(
    store: Store,
) -> None:
    await two_queues(store)
    item = await push(store, "w")
    name = f"{item.partition_id}-1"
    # Any bytes may be printed, also such as a sealed value begins with.
    parts = [b"\x01abc", b"\x02" * 50, b"", b"end"]
    size = 0
    for part in parts:
        size += len(part)
        assert await store.append_output(name, 1, part) == size
    whole = b"".join(parts)
    for start in range(len(whole) + 2):
        for most in (1, 3, 60, 1000):
            read = await store.read_output(name, 1, start=start, max_bytes=most)
            assert read.data == whole[start : start + most]
            assert read.next == start + len(read.data)


async def test_output_of_a_plain_queue_may_begin_with_any_byte(store: Store) -> None:
    await two_queues(store, encrypted=False)
    item = await push(store, "w")
    for byte in range(4):
        await store.append_output(f"{item.partition_id}-1", 1, bytes([byte]) * 40)
    read = await store.read_output(f"{item.partition_id}-1", 1)
    assert read.data == b"".join(bytes([byte]) * 40 for byte in range(4))


async def test_without_the_key_nothing_of_a_caller_is_stored_in_the_clear(
    store: Store, open_another: OpenStore, place: Place
) -> None:
    await two_queues(store)
    await push(store, "q")
    await push(store, "w")
    message, message_lease = await pop_one(store, "q")
    item, item_lease = await pop_one(store, "w")
    keyless = await open_another(keys=[])
    async with nothing_changes(store):
        for one, lease in ((message, message_lease), (item, item_lease)):
            with pytest.raises(EncryptionKeyError):
                await ack(keyless, one, lease, FAILED, error=ERROR)
            with pytest.raises(EncryptionKeyError):
                await ack_all(keyless, Popped(messages=[], lease_id=lease), FAILED, error=ERROR)
        with pytest.raises(EncryptionKeyError):
            await ack(keyless, item, item_lease, result=RESULT)
        with pytest.raises(EncryptionKeyError):
            await keyless.append_output(item.transaction_id, 1, OUTPUT)
        with pytest.raises(EncryptionKeyError):
            await keyless.add_trace(message.partition_id, message.transaction_id, TRACE)
    at_rest = await bytes_at_rest(place)
    assert not any(holds(at_rest, marker) for marker in MARKERS)
    await ack(keyless, message, message_lease, DEAD)
    await ack(keyless, item, item_lease, COMPLETED)


@pytest.mark.parametrize("keys", [[], [OTHER_KEY]], ids=["no key", "wrong key"])
async def test_an_error_that_cannot_be_read_does_not_hide_the_rest_of_the_log(
    store: Store, open_another: OpenStore, keys: list[bytes]
) -> None:
    await two_queues(store)
    await answer_in_every_way(store)
    blind = await open_another(keys=keys)
    rows = await every(blind.list_deliveries)
    assert len(rows) == len(await every(store.list_deliveries))
    shown = {row.error for row in rows if row.error is not None}
    assert shown
    assert all("encrypted" in text and "marker" not in text for text in shown)
    for error in await blind.dead_letter_errors(DeadLetterFilter()):
        assert "encrypted" in error.error
    with pytest.raises(EncryptionKeyError):
        await blind.list_attempts(queue="w")


async def test_many_completed_items_with_results_are_sealed_in_one_call(
    store: Store, open_another: OpenStore, place: Place
) -> None:
    """The way that workers take, which is another than that of one item."""
    await two_queues(store)
    await store.push([Push([PushItem("w", b"1") for _ in range(20)])])
    popped = await pop(store, "w", 20)
    acks = [
        Ack(
            status=AckStatus.COMPLETED,
            lease_id=popped.lease_id,
            transaction_id=one.transaction_id,
            partition_id=one.partition_id,
            result=RESULT if n % 2 else None,
        )
        for n, one in enumerate(popped.messages)
    ]
    keyless = await open_another(keys=[])
    refused = await keyless.ack(acks[1::2])
    assert {code_of(outcome) for outcome in refused} == {"encryption_key"}
    assert {code_of(outcome) for outcome in await store.ack(acks)} == {None}
    assert not holds(await bytes_at_rest(place), MARKERS[1])
    attempts = await every(store.list_attempts, queue="w")
    assert sorted(one.result or b"" for one in attempts) == [b""] * 10 + [RESULT] * 10


async def test_a_result_that_was_moved_to_another_queue_or_kind_is_an_error(
    store: Store, open_another: OpenStore, place: Place
) -> None:
    await two_queues(store)
    await store.configure("w2", kind=WORK, options={"encryptionEnabled": True})
    for queue in ("w", "w2"):
        await push(store, queue)
        item, lease = await pop_one(store, queue)
        await ack(store, item, lease, result=RESULT)
    [(payload,)] = await run_sql(place, "select payload from items order by queue_id limit 1")
    await run_sql(place, "update attempts set result = ?", payload)
    with pytest.raises(EncryptionKeyError, match="moved"):
        await store.list_attempts()
