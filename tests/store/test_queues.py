"""Queues: made, changed in part, listed; never half, never the wrong one."""

import asyncio
from typing import Any

import msgspec
import pytest

from monarq.clock import ManualClock
from monarq.errors import ConflictError, InvalidRequestError, NotFoundError, QueueFullError
from monarq.model import Queue, QueueKind, QueueOptions
from monarq.model.queue_options import QUEUE_OPTIONS, QueueOption
from monarq.store import Store
from tests.store.calls import ack, pop_one, push, push_many, seqs
from tests.store.conftest import OpenStore
from tests.store.scenarios import FAILED, ORDERED, WORK, cursor_row, every, nothing_changes

pytestmark = pytest.mark.smoke

#: What is chosen when a work queue is made has tests of its own: test_commands.py.
CHANGEABLE = [option for option in QUEUE_OPTIONS if not option.fixed]


def other_value(option: QueueOption) -> Any:
    """Return a value other than the default: the largest number, or one with a fraction."""
    if option.type is bool:
        return not option.default
    if option.type is str:
        return "grave"
    return int(option.most or 0) if option.type is int else option.default + 0.25


OTHER_VALUES = {option.name: other_value(option) for option in CHANGEABLE}


def test_every_other_value_is_another_one() -> None:
    assert all(OTHER_VALUES[option.name] != option.default for option in CHANGEABLE)
    assert QueueOptions(**OTHER_VALUES) == msgspec.convert(
        msgspec.to_builtins(QueueOptions(**OTHER_VALUES)), QueueOptions
    )


async def test_a_queue_is_made_with_the_defaults_and_read_back(
    store: Store, clock: ManualClock
) -> None:
    configured = await store.configure("q")
    made = await store.queue_settings("q")
    assert configured == made.configured()
    assert (made.name, made.kind, made.namespace, made.task) == ("q", ORDERED, "", "")
    assert (made.paused, made.created_at, made.options) == (False, clock.now(), QueueOptions())


async def test_every_option_is_kept_as_given(store: Store) -> None:
    await store.configure("grave")
    made = await store.configure("q", namespace="ns", task="t", options=OTHER_VALUES)
    assert made.options == QueueOptions(**OTHER_VALUES)
    assert (await store.get_queue("q")).options == QueueOptions(**OTHER_VALUES)


@pytest.mark.parametrize("kind", list(QueueKind))
async def test_a_change_of_one_option_keeps_all_the_others(store: Store, kind: QueueKind) -> None:
    await store.configure("grave", kind=kind)
    await store.configure("q", kind=kind, namespace="ns", task="t", options=OTHER_VALUES)
    expected = dict(OTHER_VALUES)
    for field in msgspec.structs.fields(QueueOptions):
        changed = await store.configure("q", options={field.encode_name: field.default})
        expected[field.name] = field.default
        assert changed.options == QueueOptions(**expected)
        assert (changed.kind, changed.namespace, changed.task) == (kind, "ns", "t")
    assert (await store.get_queue("q")).options == QueueOptions()


async def test_options_go_by_their_python_and_their_json_names(store: Store) -> None:
    made = await store.configure("q", options={"lease_time": 5, "retryLimit": 7})
    assert (made.options.lease_time, made.options.retry_limit) == (5.0, 7)


async def test_labels_change_one_at_a_time_and_can_be_removed(store: Store) -> None:
    await store.configure("q", namespace="ns", task="t")
    changed = await store.configure("q", task="other")
    assert (changed.namespace, changed.task) == ("ns", "other")
    changed = await store.configure("q", namespace="")
    assert (changed.namespace, changed.task) == ("", "other")


async def test_the_version_counts_changes_and_the_id_stays(store: Store) -> None:
    versions: list[Queue] = []
    for change in (
        lambda: store.configure("q"),
        lambda: store.configure("q", options={"leaseTime": 5}),
        lambda: store.configure("q", namespace="ns"),
        lambda: store.pause_queue("q"),
    ):
        await change()
        versions.append(await store.queue_settings("q"))
    numbers = [queue.version for queue in versions]
    assert numbers == sorted(set(numbers))
    assert len({queue.id for queue in versions}) == 1
    assert (await store.queue_settings("q")).version == numbers[-1]


async def test_a_change_made_through_one_store_holds_at_once_for_another(
    store: Store, open_another: OpenStore, clock: ManualClock
) -> None:
    other = await open_another()
    await store.configure("q", options={"retryLimit": 0})
    await push_many(store, "q", 3)
    assert await seqs(other, "q", 1, group="warm") == [1]
    await store.configure("q", options={"retryLimit": 5, "leaseTime": 1000, "maxSize": 3})
    message, lease = await pop_one(other, "q")
    assert (await other.get_queue("q")).options.lease_time == 1000
    assert (await cursor_row(store, "q", "__QUEUE_MODE__")).lease_until == (
        clock.now() + 1000_000_000
    )
    acked = await ack(other, message, lease, FAILED)
    assert acked.dead == 0
    with pytest.raises(QueueFullError):
        await push(other, "q")


# --- what is refused ---


def bad_values(option: QueueOption) -> list[Any]:
    """Return values of the wrong type, and numbers out of range."""
    if option.type is bool:
        return [None, [], 1, "yes"]
    if option.type is str:
        return [None, [], 5, "x" * 256, "a\x00b"]
    assert option.least is not None
    assert option.most is not None
    numbers = [option.least - 1, option.most + 1, float("nan"), float("inf")]
    fractions = [1.5] if option.type is int else []
    return [None, [], "5", True, *numbers, *fractions]


BAD_OPTIONS: list[dict[str, Any]] = [
    {"leaseTme": 5},
    {"lease-time": 5},
    {"LeaseTime": 5},
    {"": 5},
    {"leaseTime": 0},
    {"backoffCap": 0},
    {"leaseTime": 5, "unknown": 1},
    {"leaseTime": 5, "retryLimit": -1},
    *({option.api_name: value} for option in QUEUE_OPTIONS for value in bad_values(option)),
]


async def test_an_unknown_or_impossible_option_is_refused_and_changes_nothing(
    store: Store,
) -> None:
    await store.configure("q", options={"leaseTime": 77})
    async with nothing_changes(store):
        for options in BAD_OPTIONS:
            with pytest.raises(InvalidRequestError):
                await store.configure("q", options=options)
            with pytest.raises(InvalidRequestError):
                await store.configure("new", options=options)


async def test_the_error_about_an_unknown_option_names_it(store: Store) -> None:
    with pytest.raises(InvalidRequestError, match="leaseTme"):
        await store.configure("q", options={"leaseTme": 5})


async def test_a_malformed_name_is_refused(store: Store) -> None:
    names: list[Any] = ["", "x" * 256, "a\nb", "a\x00b", "\x7f", "\ud800", None, 5, b"q"]
    async with nothing_changes(store):
        for name in names:
            with pytest.raises(InvalidRequestError):
                await store.configure(name)
            if name not in ("", None):
                with pytest.raises(InvalidRequestError):
                    await store.configure("q", namespace=name)
                with pytest.raises(InvalidRequestError):
                    await store.configure("q", task=name)


async def test_a_queue_of_another_kind_is_a_conflict_and_the_same_kind_is_not(
    store: Store,
) -> None:
    await store.configure("w", kind=WORK, options={"leaseTime": 5})
    await push(store, "q")
    async with nothing_changes(store):
        with pytest.raises(ConflictError):
            await store.configure("w", kind=ORDERED, options={"leaseTime": 6})
        with pytest.raises(ConflictError):
            await store.configure("q", kind=WORK)
    assert (await store.configure("w", kind=WORK)).options.lease_time == 5
    assert (await store.configure("w")).kind is WORK
    assert (await store.configure("q", kind=ORDERED)).kind is ORDERED


async def test_a_queue_that_does_not_exist_is_not_found(store: Store) -> None:
    for call in (
        lambda: store.get_queue("missing"),
        lambda: store.pause_queue("missing"),
        lambda: store.clear_queue("missing"),
        lambda: store.list_messages("missing"),
        lambda: store.list_items("missing"),
        lambda: store.list_items("missing", order="next"),
        lambda: store.export_plan("missing"),
        lambda: store.list_items("missing", transaction_id="t"),
        lambda: store.list_cursors("missing", "g"),
    ):
        with pytest.raises(NotFoundError):
            await call()
    assert not (await store.delete_queue("missing")).deleted


async def test_two_stores_that_configure_a_new_queue_at_once_make_one(
    store: Store, open_another: OpenStore
) -> None:
    stores = [store, await open_another()]
    for n in range(4):
        made = await asyncio.gather(
            *(stores[k % 2].configure(f"q{n}", options={"retryLimit": k}) for k in range(6))
        )
        assert len({queue.id for queue in made}) == 1
    assert len((await store.list_queues()).rows) == 4


async def test_changes_of_different_options_at_once_are_all_kept(
    store: Store, open_another: OpenStore
) -> None:
    other = await open_another()
    await store.configure("q")
    await asyncio.gather(
        store.configure("q", options={"leaseTime": 11}),
        other.configure("q", options={"retryLimit": 12}),
        store.configure("q", options={"maxSize": 13}),
        other.configure("q", namespace="ns"),
    )
    queue = await other.get_queue("q")
    options = queue.options
    assert (options.lease_time, options.retry_limit, options.max_size) == (11, 12, 13)
    assert queue.namespace == "ns"


# --- list ---


async def test_queues_are_listed_by_name_page_by_page_with_their_labels(store: Store) -> None:
    names = ["b", "B", "a", "ä", "z", "Z", "10", "9", "%", "_", "日"]
    for n, name in enumerate(names):
        await store.configure(name, namespace=f"n{n % 2}", task=f"t{n % 3}")
    for limit in (1, 2, 3, 11, 100):
        rows = await every(store.list_queues, limit=limit)
        assert [row.name for row in rows] == sorted(names)
    in_n1 = await every(store.list_queues, namespace="n1", limit=2)
    assert [row.name for row in in_n1] == sorted(names[1::2])
    in_t0 = await every(store.list_queues, task="t0", limit=2)
    assert [row.name for row in in_t0] == sorted(names[::3])
    both = await every(store.list_queues, namespace="n0", task="t0", limit=1)
    assert [row.name for row in both] == sorted(names[::6])


async def test_paging_through_queues_neither_repeats_nor_skips_while_they_come_and_go(
    store: Store,
) -> None:
    for n in range(10, 20):
        await store.configure(f"q{n}")
    first = await store.list_queues(limit=4)
    await store.delete_queue("q13")
    await store.delete_queue("q15")
    await store.configure("q100")
    await store.configure("q17b")
    rest = await every(store.list_queues, limit=4)
    page = await store.list_queues(limit=100, after=first.next)
    assert [row.name for row in first.rows] == ["q10", "q11", "q12", "q13"]
    assert [row.name for row in page.rows] == ["q14", "q16", "q17", "q17b", "q18", "q19"]
    assert len(rest) == 10


async def test_a_queue_can_be_configured_while_pushes_make_it(
    store: Store, open_another: OpenStore
) -> None:
    other = await open_another()
    for n in range(20):
        name = f"q{n}"
        await asyncio.gather(
            push(store, name),
            store.configure(name, options={"leaseTime": 7}),
            push(other, name),
            other.configure(name, options={"retryLimit": 7}),
        )
        queue = await store.get_queue(name)
        assert (queue.options.lease_time, queue.options.retry_limit) == (7, 7)
        assert queue.counts.stored == 2
