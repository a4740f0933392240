"""Retention that waits for the archive: never too early, never for ever, and nobody else waits."""

import pytest

from monarq.clock import ManualClock
from monarq.errors import ConflictError, InvalidRequestError, NotFoundError
from monarq.model import Pushed
from monarq.store import Store
from tests.store.calls import push, push_many
from tests.store.conftest import OpenStore
from tests.store.scenarios import WORK, drain, let_time_work

pytestmark = pytest.mark.smoke

WAITS = {"retainUntilArchived": True, "retentionSeconds": 100, "completedRetentionSeconds": 10}


async def kept(store: Store, queue: str = "q") -> list[tuple[int, int]]:
    return [(part.first_seq, part.last_seq) for part in await store.export_plan(queue)]


async def three_segments(store: Store, **options: object) -> Pushed:
    """Seqs 1 to 3, 4 to 6 and 7 to 9."""
    await store.configure("q", options=WAITS | options)
    first, *_ = [pushed for _ in range(3) for pushed in await push_many(store, "q", 3)]
    return first


async def test_what_is_not_archived_stays_however_old_and_consumed(
    store: Store, clock: ManualClock
) -> None:
    await three_segments(store)
    await drain(store, "q", 9)
    clock.advance(1_000_000)
    await let_time_work(store)
    assert await kept(store) == [(1, 9)]


async def test_what_is_archived_goes_when_its_time_has_come_and_the_rest_stays(
    store: Store, clock: ManualClock
) -> None:
    pushed = await three_segments(store)
    await store.set_archived("q", {pushed.partition_id: 6})
    await let_time_work(store)
    assert await kept(store) == [(1, 9)], "it is not old enough"
    clock.advance(101)
    await let_time_work(store)
    assert await kept(store) == [(7, 9)]


async def test_a_segment_that_is_archived_in_part_stays_whole(
    store: Store, clock: ManualClock
) -> None:
    pushed = await three_segments(store)
    await store.set_archived("q", {pushed.partition_id: 5})
    clock.advance(101)
    await let_time_work(store)
    assert await kept(store) == [(4, 9)]


async def test_what_was_waited_for_goes_soon_after_it_is_archived(
    store: Store, clock: ManualClock
) -> None:
    pushed = await three_segments(store)
    clock.advance(1_000)
    await let_time_work(store)
    await store.set_archived("q", {pushed.partition_id: 9})
    await let_time_work(store)
    assert await kept(store) == [(10, 9)]


async def test_the_lifecycle_has_nothing_to_do_while_it_waits_for_the_archive(
    store: Store, clock: ManualClock
) -> None:
    await three_segments(store)
    clock.advance(1_000)
    await let_time_work(store)
    report = await store.lifecycle()
    assert report.removed == 0
    assert report.next_at is None or report.next_at > clock.now(), "it would never rest"


async def test_consumed_messages_wait_for_the_archive_too(store: Store, clock: ManualClock) -> None:
    pushed = await three_segments(store, retentionSeconds=0)
    await drain(store, "q", 9)
    await store.set_archived("q", {pushed.partition_id: 3})
    clock.advance(70)
    await let_time_work(store)
    assert await kept(store) == [(4, 9)]


async def test_a_queue_that_does_not_wait_is_retained_as_ever(
    store: Store, clock: ManualClock
) -> None:
    pushed = await three_segments(store, retainUntilArchived=False)
    await store.set_archived("q", {pushed.partition_id: 3})
    clock.advance(101)
    await let_time_work(store)
    assert await kept(store) == [(10, 9)]


async def test_the_option_switched_off_lets_go_at_once(store: Store, clock: ManualClock) -> None:
    await three_segments(store)
    clock.advance(1_000)
    await let_time_work(store)
    await store.configure("q", options={"retainUntilArchived": False})
    await let_time_work(store)
    assert await kept(store) == [(10, 9)]


async def test_archived_never_moves_back(store: Store, clock: ManualClock) -> None:
    pushed = await three_segments(store)
    await store.set_archived("q", {pushed.partition_id: 6})
    await store.set_archived("q", {pushed.partition_id: 2})
    assert await store.archived("q") == {pushed.partition_id: 6}
    clock.advance(101)
    await let_time_work(store)
    assert await kept(store) == [(7, 9)]


async def test_what_does_not_exist_yet_cannot_be_archived_and_nothing_of_the_call_is_noted(
    store: Store,
) -> None:
    pushed = await three_segments(store)
    other = await push(store, "q", partition="p")
    with pytest.raises(InvalidRequestError):
        await store.set_archived("q", {other.partition_id: 1, pushed.partition_id: 10})
    assert await store.archived("q") == {}
    for positions in ({pushed.partition_id: -1}, {0: 1}, {pushed.partition_id: 1.5}):
        with pytest.raises(InvalidRequestError):
            await store.set_archived("q", positions)  # type: ignore[arg-type]


async def test_partitions_of_other_queues_and_those_that_are_gone_are_passed_over(
    store: Store,
) -> None:
    pushed = await three_segments(store)
    foreign = await push(store, "other")
    await store.set_archived("q", {foreign.partition_id: 1, 987_654: 5, pushed.partition_id: 3})
    assert await store.archived("q") == {pushed.partition_id: 3}
    assert await store.archived("other") == {}


async def test_only_ordered_queues_are_archived(store: Store) -> None:
    await store.configure("w", kind=WORK)
    with pytest.raises(ConflictError):
        await store.set_archived("w", {1: 0})
    with pytest.raises(ConflictError):
        await store.archived("w")
    with pytest.raises(NotFoundError):
        await store.set_archived("nowhere", {1: 0})
    with pytest.raises(NotFoundError):
        await store.archived("nowhere")


async def test_clearing_and_deleting_wait_for_nobody(store: Store) -> None:
    await three_segments(store)
    assert await store.clear_queue("q") == 9
    assert await kept(store) == [(10, 9)]
    await push_many(store, "q", 2)
    assert (await store.delete_queue("q")).deleted


async def test_every_process_sees_what_is_archived(store: Store, open_another: OpenStore) -> None:
    pushed = await three_segments(store)
    other = await open_another()
    await other.set_archived("q", {pushed.partition_id: 4})
    assert await store.archived("q") == {pushed.partition_id: 4}
