"""Dead letters: listed, filtered, counted, purged, each exactly as asked and no other."""

import pytest

from monarq.clock import SECOND, ManualClock
from monarq.model import DeadLetterFilter
from monarq.store import Store
from tests.store.burying import bury
from tests.store.calls import ack, pop, pop_one, push, push_many
from tests.store.scenarios import (
    DEAD,
    EVERY_DEAD_LETTER,
    FAILED,
    WORK,
    dead_letters,
    drain,
    every,
    stats,
)

pytestmark = pytest.mark.smoke


async def test_dead_letters_are_listed_newest_first_page_by_page(
    store: Store, clock: ManualClock
) -> None:
    for n in range(7):
        await bury(store, "q", b"%d" % n)
        clock.advance(n % 2)
    for limit in (1, 2, 3, 7, 100):
        rows = await every(store.list_dead_letters, EVERY_DEAD_LETTER, limit=limit)
        assert [int(row.payload) for row in rows] == [6, 5, 4, 3, 2, 1, 0]
        assert len({row.id for row in rows}) == 7


async def test_paging_neither_repeats_nor_skips_while_letters_come_and_go(store: Store) -> None:
    for n in range(8):
        await bury(store, "q", b"%d" % n)
    first = await store.list_dead_letters(EVERY_DEAD_LETTER, limit=3)
    by_payload = {int(row.payload): row.id for row in await dead_letters(store)}
    await bury(store, "q", b"8")
    await store.purge_dead_letters(ids=[by_payload[6], by_payload[3]])
    rest = await store.list_dead_letters(EVERY_DEAD_LETTER, limit=100, after=first.next)
    assert [int(row.payload) for row in first.rows] == [7, 6, 5]
    assert [int(row.payload) for row in rest.rows] == [4, 2, 1, 0]


async def test_each_filter_picks_what_matches_and_all_given_must(
    store: Store, clock: ManualClock
) -> None:
    times = []
    for n, (queue, group, partition) in enumerate(
        [
            ("q1", "a", "x"),
            ("q1", "a", "y"),
            ("q1", "b", "x"),
            ("q2", "a", "x"),
            ("q2", "b", "y"),
        ]
    ):
        times.append(clock.now())
        await bury(store, queue, b"%d" % n, group, partition)
        clock.advance(10)
    ids = {int(row.payload): row.id for row in await dead_letters(store)}
    for which, expected in (
        (DeadLetterFilter(), [0, 1, 2, 3, 4]),
        (DeadLetterFilter(queue="q1"), [0, 1, 2]),
        (DeadLetterFilter(group="a"), [0, 1, 3]),
        (DeadLetterFilter(partition="x"), [0, 2, 3]),
        (DeadLetterFilter(queue="q1", group="a"), [0, 1]),
        (DeadLetterFilter(queue="q1", group="b", partition="x"), [2]),
        (DeadLetterFilter(queue="q1", group="b", partition="y"), []),
        (DeadLetterFilter(queue="missing"), []),
        (DeadLetterFilter(failed_from=times[2] - 5 * SECOND), [2, 3, 4]),
        (DeadLetterFilter(failed_to=times[2] + 5 * SECOND), [0, 1, 2]),
        (
            DeadLetterFilter(
                failed_from=times[1] - 5 * SECOND, failed_to=times[2] + 5 * SECOND, queue="q1"
            ),
            [1, 2],
        ),
        (DeadLetterFilter(failed_from=times[2], failed_to=times[3]), [2, 3]),
        (DeadLetterFilter(failed_from=times[2] + 1, failed_to=times[3] - 1), []),
        (DeadLetterFilter(ids=[ids[4], ids[0]]), [0, 4]),
        (DeadLetterFilter(ids=[ids[4], 987_654_321]), [4]),
        (DeadLetterFilter(ids=[]), []),
        (DeadLetterFilter(ids=[ids[4], ids[0]], queue="q1"), [0]),
    ):
        rows = await every(store.list_dead_letters, which, limit=2)
        assert sorted(int(row.payload) for row in rows) == expected, which
        assert await store.count_dead_letters(which) == len(expected), which


async def test_a_dead_letter_says_why_also_if_its_consumer_did_not(store: Store) -> None:
    await store.configure("q", options={"retryLimit": 0})
    await store.configure("w", kind=WORK, options={"maxAttempts": 1})
    for queue in ("q", "w"):
        for status in (FAILED, DEAD):
            await push(store, queue)
            message, lease = await pop_one(store, queue)
            await ack(store, message, lease, status)
        letters = await dead_letters(store, queue=queue)
        assert [letter.error for letter in reversed(letters)] == [
            "failed without an error",
            "given up by its consumer",
        ]
    assert {letter.error for letter in await dead_letters(store)} == {
        error.error for error in await store.dead_letter_errors(EVERY_DEAD_LETTER)
    }


async def test_an_item_that_dies_without_a_word_keeps_its_last_error(
    store: Store, clock: ManualClock
) -> None:
    await store.configure("w", kind=WORK, options={"maxAttempts": 2, "backoffBase": 1})
    await push(store, "w")
    message, lease = await pop_one(store, "w")
    await ack(store, message, lease, FAILED, error="the disk is full")
    clock.advance(2)
    message, lease = await pop_one(store, "w")
    await ack(store, message, lease, FAILED)
    [letter] = await dead_letters(store)
    assert letter.error == "the disk is full"
    assert (await store.get_item(message.id)).error == "the disk is full"


async def test_purge_removes_what_matches_and_nothing_else(store: Store) -> None:
    for n in range(4):
        await bury(store, f"q{n % 2}", b"%d" % n)
    [victim, *_] = await dead_letters(store, queue="q0")
    assert await store.purge_dead_letters(ids=[victim.id]) == 1
    assert await store.purge_dead_letters(ids=[victim.id]) == 0
    assert await store.purge_dead_letters(queue="q1") == 2
    assert [int(row.payload) for row in await dead_letters(store)] == [0]
    assert (await stats(store, "q1")).dead_letters == 0
    assert (await stats(store, "q0")).dead_letters == 1
    assert (await stats(store, "q1")).dead == 2
    assert await store.purge_dead_letters(all=True) == 1
    assert await store.count_dead_letters(EVERY_DEAD_LETTER) == 0


async def test_a_purged_letter_does_not_bring_its_message_back(store: Store) -> None:
    await bury(store, "q", b"1")
    await store.purge_dead_letters(all=True)
    assert (await pop(store, "q", group="g")).messages == []


async def test_purging_the_letters_of_items_leaves_nothing_to_lease(store: Store) -> None:
    await store.configure("w", kind=WORK)
    await push_many(store, "w", 2)
    message, lease = await pop_one(store, "w")
    await ack(store, message, lease, DEAD)
    assert await store.purge_dead_letters(queue="w") == 1
    assert (await stats(store, "w")).dead_letters == 0
    assert [m.payload for m in await drain(store, "w")] == [b"2"]


async def test_deleting_a_dead_item_deletes_its_letter_too(store: Store) -> None:
    await store.configure("w", kind=WORK)
    answer = await push(store, "w")
    message, lease = await pop_one(store, "w")
    await ack(store, message, lease, DEAD)
    await store.delete_message(answer.partition_id, answer.transaction_id)
    assert await dead_letters(store) == []
    assert (await stats(store, "w")).dead_letters == 0
    assert await store.redrive(all=True) == 0
