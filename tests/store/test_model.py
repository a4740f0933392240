"""Random histories on a store and on the reference model: both must answer and look the same.

A longer run than that of every day: MONARQ_TEST_HISTORIES=1000 (histories on the memory store; the
others get their share).
"""

import os
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, rule, run_state_machine_as_test

from monarq.model import Pop, Push, PushItem, QueueKind
from monarq.operations.dead_letters import PurgeDeadLetters, Redrive
from monarq.operations.groups import Seek
from tests.store import strategies as some
from tests.store.calls import ack_of
from tests.store.conftest import Place, new_place
from tests.store.random_flow import RandomFlow

HISTORIES = int(os.environ.get("MONARQ_TEST_HISTORIES", "60"))
STEPS = 40
SHARES = {"memory": 1.0, "sqlite": 0.2, "postgres-newest": 0.25}

#: What may happen, as often as it is named here.
ACTIONS = (
    *("push_to_one_queue", "push") * 2,
    *("pop_where_something_is", "pop_and_ack") * 3,
    *("ack", "ack_every_message_of_a_lease", "ack_and_pop", "time_passes") * 2,
    *("pop", "ack_a_whole_lease", "renew", "transaction", "lifecycle", "configure"),
    *("subscribe_or_seek", "redrive_or_purge", "cancel_or_retry_an_item", "administer"),
    *("delete_message", "look_at_every_message", "much_time_passes", "archive"),
    "skip",
)


class Histories(RandomFlow):
    """Histories of all that may happen, queues, groups and dead letters included."""

    @rule(action=st.sampled_from(ACTIONS), data=st.data())
    def step(self, action: str, data: st.DataObject) -> None:
        # One rule for all: Hypothesis switches rules off at random, and a history without a
        # push or a pop tells nothing.
        getattr(self, action)(data)

    # --- queues --------------------------------------------------------------------------------

    @initialize(data=st.data())
    def begin_with_all_queues(self, data: st.DataObject) -> None:
        for queue in reversed(some.QUEUES):
            self.configure_queue(queue, data.draw(some.options_of(queue)))

    def configure(self, data: st.DataObject) -> None:
        queue = data.draw(some.queues)
        self.configure_queue(queue, data.draw(some.options_of(queue)))

    def configure_queue(self, queue: str, options: dict[str, Any]) -> None:
        namespace = some.LABEL if queue in some.ORDERED else None
        kind = some.KINDS[queue]
        self.both.call("configure", queue, kind=kind, namespace=namespace, options=options)

    def administer(self, data: st.DataObject) -> None:
        """What happens now and then; a rule each would make them too frequent."""
        queue = data.draw(some.queues)
        group = data.draw(some.groups)
        match data.draw(st.sampled_from(["resume", "resume", "pause", "clear", "delete", "group"])):
            case "resume":
                for name, known in self.model.world.queues.items():
                    if known.paused:
                        self.both.call("resume_queue", name)
            case "pause":
                self.both.call("pause_queue", queue)
            case "clear":
                which = data.draw(
                    st.sampled_from([{}, {"scheduled_only": True}, {"keep_leased": True}])
                )
                self.both.call("clear_queue", queue, **which)
            case "delete":
                self.both.call("delete_queue", queue)
                if data.draw(st.booleans()):
                    self.configure_queue(queue, {})
            case "group" if some.KINDS[queue] is QueueKind.ORDERED:
                forget = data.draw(st.booleans())
                self.both.call("delete_group", group, queue=queue, forget_start=forget)

    def archive(self, data: st.DataObject) -> None:
        places = [(queue.name, partition) for queue, partition in self.model.all_partitions()]
        if places:
            queue, partition = data.draw(st.sampled_from(places))
            last = partition.last_seq
            seq = data.draw(st.sampled_from([last, last, last // 2, 0, last + 1]))
            self.both.set_archived(queue, partition.id, seq)

    def subscribe_or_seek(self, data: st.DataObject) -> None:
        group = data.draw(some.groups)
        queue = data.draw(some.ordered_queues)
        known = self.model.world.queues.get(queue)
        if known is None or group not in known.groups:
            self.both.call("subscribe", group, data.draw(some.starts(self.now)), queue=queue)
        else:
            partition = data.draw(st.sampled_from([None, None, *some.PARTITIONS]))
            target = data.draw(some.seek_targets(self.now))
            self.both.call("seek", Seek(group=group, queue=queue, partition=partition, **target))

    def skip(self, data: st.DataObject) -> None:
        places = [
            (queue, partition, cursor)
            for queue, partition in self.model.all_partitions()
            for cursor in partition.cursors.values()
            if cursor.lease is None or not cursor.lease.has_run_out(self.now)
        ]
        if places:
            queue, partition, cursor = data.draw(st.sampled_from(places))
            left = self.model.unresolved(partition, cursor)
            seq = left[0].seq if left else partition.last_seq + 1
            seq += data.draw(st.sampled_from([0, 0, 0, 1]))
            self.both.call("skip", queue.name, cursor.group, partition.name, seq, "by hand")

    # --- dead letters, messages, items -----------------------------------------------------------

    def redrive_or_purge(self, data: st.DataObject) -> None:
        if not self.model.world.letters:
            return
        limit = data.draw(st.sampled_from([1, 2, 1000, None]))
        if limit is None:
            self.both.call("purge_dead_letters", PurgeDeadLetters(**self.some_letters(data)))
        else:
            to = data.draw(st.sampled_from([None, None, None, *some.QUEUES, "nowhere"]))
            request = Redrive(**self.some_letters(data), to_queue=to, limit=limit)
            self.both.call("redrive", request)

    def some_letters(self, data: st.DataObject) -> dict[str, Any]:
        letter = data.draw(st.sampled_from(self.model.world.letters))
        queue = letter.queue
        group = letter.group or None  # An item has none, and no filter is for none.
        return data.draw(
            st.sampled_from(
                [
                    {"queue": queue},
                    {"queue": queue, "group": group},
                    {"queue": queue, "partition": letter.partition},
                    {"queue": queue, "failed_from": letter.failed_at},
                ]
            )
        )

    def delete_message(self, data: st.DataObject) -> None:
        # Whether a lease that has run out is settled before the message goes is left open.
        kept = [
            (partition.id, transaction_id)
            for queue, partition in self.model.all_partitions()
            if not any(
                c.lease and c.lease.has_run_out(self.now) for c in partition.cursors.values()
            )
            for transaction_id in self.model.kept(queue, partition)
        ]
        if kept:
            self.both.call_on_message("delete_message", *data.draw(st.sampled_from(kept)))

    def cancel_or_retry_an_item(self, data: st.DataObject) -> None:
        what = data.draw(st.sampled_from(["cancel_item", "retry_item"]))
        ids = [
            item.id
            for queue in self.model.world.queues.values()
            if queue.is_work
            for item in self.model.list_items(queue.name)
        ]
        if ids:
            self.both.call_on_item(what, data.draw(st.sampled_from(ids)))

    def look_at_every_message(self, data: st.DataObject) -> None:
        self.both.compare_group_states()

    # --- what must always hold -------------------------------------------------------------------

    @invariant()
    def all_that_can_be_seen_is_the_same(self) -> None:
        self.both.compare_everything()


class Expiries(RandomFlow):
    """Histories of consumers that take large batches, answer some of them and let leases expire."""

    ACTIONS = (
        *("push_to_partitions", "pop_a_batch", "leases_expire") * 3,
        *("ack_some_of_the_last_lease", "pop_a_batch") * 2,
        *("ack_and_pop", "lifecycle"),
    )

    @initialize(data=st.data())
    def begin_with_two_queues(self, data: st.DataObject) -> None:
        options = {"leaseTime": 5.0, "retryLimit": data.draw(st.integers(0, 2)), "retryDelay": 0}
        for queue in some.ORDERED:
            self.both.call("configure", queue, namespace=some.LABEL, options=options)

    @rule(action=st.sampled_from(ACTIONS), data=st.data())
    def step(self, action: str, data: st.DataObject) -> None:
        getattr(self, action)(data)

    def push_to_partitions(self, data: st.DataObject) -> None:
        queue = data.draw(st.sampled_from(some.ORDERED))
        partition = data.draw(st.sampled_from(some.PARTITIONS))
        count = data.draw(st.sampled_from([1, 2, 12, 30]))
        item = PushItem(queue, b"1", partition=partition, namespace=some.LABEL)
        self.both.push([Push([item] * count)])

    def pop_a_batch(self, data: st.DataObject) -> None:
        names = data.draw(st.sampled_from([*some.ORDERED, None]))
        where: dict[str, Any] = {"queue": names} if names else {"namespace": some.LABEL}
        request = Pop(
            **where,
            batch=data.draw(st.sampled_from([1, 2, 7, 20, 60])),
            partitions=data.draw(st.sampled_from([1, 1, 1, 2, 6])),
            lease_seconds=5.0,
            auto_ack=data.draw(st.integers(0, 9)) == 9,
        )
        self.pop_these([request] * data.draw(st.sampled_from([1, 1, 2])), data.draw(some.max_bytes))

    def leases_expire(self, data: st.DataObject) -> None:
        self.both.note("advance", 5.0)
        self.clock.advance(5.0)

    def ack_some_of_the_last_lease(self, data: st.DataObject) -> None:
        if not self.delivered:
            return
        last = self.delivered[-1][1]
        under = [one for one in self.delivered if one[1] == last]
        chosen = data.draw(st.permutations(under))[: data.draw(st.integers(1, len(under)))]
        for message, lease, group in chosen:
            self.both.ack([ack_of(message, lease, data.draw(some.statuses), group=group)])

    @invariant()
    def all_that_can_be_seen_is_the_same(self) -> None:
        self.both.compare_everything()


@pytest.mark.slow
@pytest.mark.parametrize("name", SHARES)
@pytest.mark.parametrize("histories", [Histories, Expiries])
def test_random_histories_agree_with_the_reference_model(
    name: str,
    histories: type[RandomFlow],
    tmp_path_factory: pytest.TempPathFactory,
    postgres_servers: Mapping[str, str],
) -> None:
    class HistoriesHere(histories):  # type: ignore[valid-type,misc]
        @staticmethod
        def new_place() -> AbstractAsyncContextManager[Place]:
            return new_place(name, tmp_path_factory.mktemp("history"), postgres_servers)

    run_state_machine_as_test(
        HistoriesHere,
        settings=settings(
            # The same histories for everybody who checks the same commit; others by asking for
            # more of them.
            derandomize="MONARQ_TEST_HISTORIES" not in os.environ,
            max_examples=max(3, round(HISTORIES * SHARES[name])),
            stateful_step_count=STEPS,
            deadline=None,
            print_blob=True,
            report_multiple_bugs=False,
            suppress_health_check=list(HealthCheck),
            phases=[Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink],
        ),
    )
