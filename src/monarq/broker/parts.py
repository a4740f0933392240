"""What a broker is made of, and how its parts are wired to each other."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

from msgspec import structs

from monarq.broker.alarms import Alarms
from monarq.broker.availability import Availability, Opener
from monarq.broker.batching import Inbox, Limits
from monarq.broker.deferring import Deferred
from monarq.broker.facts import Facts
from monarq.broker.failover import Failover, store_name
from monarq.broker.inboxes import AckCall, ManyInbox, SingleInbox
from monarq.broker.lifecycle import Lifecycle
from monarq.broker.maintenance import Maintenance
from monarq.broker.measures import Measures
from monarq.broker.notices import Notice, NoticeKind
from monarq.broker.peers import Peers
from monarq.broker.polling import Poller
from monarq.broker.pops import PopInbox
from monarq.broker.push_buffer import PushBuffer
from monarq.broker.pushes import ChainedPush, PushCall, PushInbox, payload_bytes
from monarq.broker.signals import Signals
from monarq.broker.waiting import Waiting
from monarq.broker.waking import Waking
from monarq.clock import Clock
from monarq.config import Settings
from monarq.crypto import Cipher, parse_key
from monarq.errors import (
    AlreadyPushedError,
    ConflictError,
    DrainingError,
    StoreUnavailableError,
)
from monarq.model import Ack, Push, Pushed, Renew, Transaction
from monarq.operations.operation import Operation
from monarq.store.contract import Outcome, Store

log = logging.getLogger(__name__)

R = TypeVar("R")

_ACK_CALLS = 2
_TRANSACTIONS = 8
_ACKS = 1_000
_PLACE = ("host", "port", "dbname", "database")
"""What of a PostgreSQL address's options says where it is."""
_UNRETURNED = 10_000
"""Leases that nobody received and that wait for the store to be given back; others expire."""
_GRACE = 0.5
"""Seconds that the store has beyond its own time limit to say that it has failed."""


class Parts:
    def __init__(
        self, opener: Opener, settings: Settings, clock: Clock, peers: Peers | None
    ) -> None:
        loop = asyncio.get_running_loop()
        self.settings = settings
        self.clock = clock
        self.peers = peers
        self.measures = measures = Measures()
        self.alarms = alarms = Alarms(clock, loop)
        self.failover: Failover | None = None
        self._unreturned: deque[Ack] = deque(maxlen=_UNRETURNED)
        self.availability = Availability(
            opener,
            alarms,
            retry_seconds=settings.buffer_retry_seconds,
            timeout_seconds=settings.store_timeout_seconds,
            on_opened=self._store_opened,
            on_down=self._store_down,
            on_up=self._store_up,
        )
        store, failed = self.availability.get, self.availability.failed
        self.facts = Facts(store)
        self.waiting = Waiting(alarms, clock.now, measures)
        self.waking = Waking(self.waiting, self.facts)
        self.signals = Signals(self.waking, self.facts)
        self.lifecycle = Lifecycle(
            alarms,
            store,
            self._stirred_by_lifecycle,
            measures,
            failed,
            clock.now,
            limit=settings.lifecycle_limit,
            max_seconds=settings.lifecycle_max_seconds,
        )
        limits = Limits(
            concurrency=1,
            batch_max=_ACKS,
            calls_max=settings.inbox_max,
            timeout_seconds=settings.store_timeout_seconds + _GRACE,
        )
        self.pushes = PushInbox(
            structs.replace(
                limits,
                batch_max=settings.batch_max,
                batch_max_bytes=settings.batch_max_bytes,
                bytes_max=settings.inbox_max_bytes,
                wait_seconds=settings.batch_wait_ms / 1_000,
            ),
            measures,
            failed,
            store,
            self.signals.pushed,
        )
        self.pops = PopInbox(
            structs.replace(limits, batch_max=settings.pop_batch_max),
            measures,
            failed,
            store,
            self.waiting,
            self.facts,
            self.lifecycle.hint,
            self.signals.note_span,
            self.signals.acked,
            settings.pop_max_bytes,
        )
        self.waiting.looks = self.pops

        self.acks = ManyInbox(limits, measures.ack, measures, failed, self._ack, self.signals.acked)
        self.renews = ManyInbox(limits, measures.renew, measures, failed, self._renew)
        self.transactions = SingleInbox(
            limits, measures.transaction, measures, failed, self._transact, self.signals.transacted
        )
        # One in a call, whose mark is its own; and it must leave while the one before it is under
        # way.
        self.chained = SingleInbox(
            structs.replace(limits, batch_max=1, bytes_max=settings.inbox_max_bytes),
            measures.push,
            measures,
            failed,
            self._push_chained,
            lambda one, pushed: self.signals.pushed([one.push], [pushed]),
        )
        self.poller = Poller(
            alarms,
            self.waiting,
            store,
            measures,
            failed,
            shortest=settings.poll_min_ms / 1_000,
            longest=settings.poll_max_ms / 1_000,
            most=settings.pop_batch_max,
        )
        self.waiting.on_parked = self.poller.wanted
        self.waiting.on_found = self.poller.found
        self.waiting.on_wanted = self.facts.want
        self.maintenance = Maintenance(alarms, store, self._maintenance_changed, failed)
        self.deferred = Deferred(
            alarms, self._push_deferred, measures, bytes_max=settings.inbox_max_bytes
        )

    def inboxes(self) -> dict[str, Inbox[Any]]:
        return {
            "push": self.pushes,
            "chained_push": self.chained,
            "pop": self.pops,
            "ack": self.acks,
            "renew": self.renews,
            "transaction": self.transactions,
        }

    # --- from start to end -----------------------------------------------------------------

    async def start(self, buffer_dir: Path | None) -> None:
        settings = self.settings
        await self.availability.open()
        if buffer_dir is not None and settings.buffer_enabled:
            keys = [parse_key(key) for key in settings.encryption_keys]
            buffer = await PushBuffer.open(
                buffer_dir,
                store=store_name(settings),
                cipher=Cipher(keys) if keys else None,
                file_bytes=settings.buffer_file_bytes,
                max_bytes=settings.buffer_max_bytes,
                waiting_max_bytes=settings.inbox_max_bytes,
                clock=self.clock,
            )
            self.failover = self.pushes.failover = Failover(
                buffer,
                push=self._replay,
                probe=self.availability.probe,
                changed=self.pushes.route_changed,
                batch_max=settings.batch_max,
                batch_max_bytes=settings.batch_max_bytes,
                retry_seconds=settings.buffer_retry_seconds,
                store_is_up=self.availability.is_up,
                clock=self.clock,
            )
            self.pushes.route_changed(self.failover.route)
        if self.availability.is_up:
            # Before the first push: one that should go to the buffer must not go to the store.
            with contextlib.suppress(StoreUnavailableError):
                await self.maintenance.refresh()
        if self.failover is not None:
            self.failover.start()
        self.maintenance.start()
        self.lifecycle.start()
        if self.peers is not None:
            self.peers.on_notice = self._noticed
            self.signals.tell_available = self._tell_available
            self.signals.tell_free = self._tell_free

    async def idle(self) -> None:
        """Wait until all calls in the inboxes are carried out."""
        while any(inbox.is_busy for inbox in self.inboxes().values()):
            for inbox in self.inboxes().values():
                await inbox.idle()

    async def close(self) -> None:
        self.maintenance.close()
        self.poller.close()
        self.facts.close()
        error = DrainingError("the broker has shut down before this was carried out")
        stopped = [task for inbox in self.inboxes().values() for task in inbox.stop(error)]
        if stopped:
            await asyncio.wait(stopped, timeout=1.0)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self.settings.store_timeout_seconds):
                await self.lifecycle.close()
        if self.failover is not None:
            await self.failover.close()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self.settings.store_timeout_seconds):
                await self.availability.close()
        self.alarms.close()

    # --- the store ---------------------------------------------------------------------------

    def _store_opened(self, store: Store) -> None:
        settings = self.settings
        if store.concurrent:
            self._set_concurrency(self.pushes, settings.push_concurrency)
            self._set_concurrency(self.chained, settings.push_concurrency)
            self._set_concurrency(self.pops, settings.pop_concurrency)
            self._set_concurrency(self.acks, _ACK_CALLS)
            self._set_concurrency(self.transactions, _ACK_CALLS)
            self.transactions.limits = structs.replace(
                self.transactions.limits, batch_max=_TRANSACTIONS
            )
        else:
            self.poller.set_interval(settings.sqlite_poll_ms / 1_000)

    def _set_concurrency(self, inbox: Inbox[Any], concurrency: int) -> None:
        inbox.limits = structs.replace(inbox.limits, concurrency=concurrency)

    def _store_down(self) -> None:
        self.measures.store_failures += 1
        # Who is parked stays so: there is nothing to be had, and soon there may be.
        self.waiting.hold(True)
        if self.failover is not None:
            self.failover.store_failed()

    def _store_up(self) -> None:
        if self.failover is not None:
            self.failover.try_now()
        for _ in range(len(self._unreturned)):
            self.release(self._unreturned.popleft())
        self.facts.forget()
        self.waiting.hold(self.maintenance.pop, "store")
        self.lifecycle.hurry()
        self.maintenance.refresh_soon()

    async def _ack(self, requests: Sequence[Ack]) -> Any:
        return await self.availability.get().ack(requests)

    async def _renew(self, requests: Sequence[Renew]) -> Any:
        return await self.availability.get().renew(requests)

    async def _transact(self, requests: Sequence[Transaction]) -> Any:
        return await self.availability.get().transaction(requests)

    async def _push_chained(self, requests: Sequence[ChainedPush]) -> Any:
        [one] = requests
        store = self.availability.get()
        try:
            return await store.push([one.push], mark=one.mark, after=one.after)
        except (AlreadyPushedError, ConflictError) as error:
            return [error]

    async def _replay(
        self, requests: Sequence[Push], *, mark: str | None
    ) -> list[Outcome[list[Pushed]]]:
        try:
            async with asyncio.timeout(self.settings.store_timeout_seconds + _GRACE):
                answers = await self.availability.get().push(requests, mark=mark)
        except TimeoutError:
            hung = StoreUnavailableError("the store did not answer the replay in time")
            self.availability.failed(hung)
            raise hung from None
        except StoreUnavailableError as error:
            self.availability.failed(error)
            raise
        self.signals.pushed(requests, answers)
        return answers

    def release(self, ack: Ack) -> None:
        """Give a lease back; when the store is there again, if it is not now."""
        if not self.availability.is_up:
            self._unreturned.append(ack)
            return
        call = AckCall(loop=asyncio.get_running_loop())
        call.request = [ack]
        call.count = 1
        call.size = 0
        self.acks.add(call)

    def _push_deferred(self, push: Push) -> asyncio.Future[list[Pushed]]:
        call = PushCall(loop=asyncio.get_running_loop())
        call.request = push
        call.count = len(push.items)
        call.size = payload_bytes(push.items)
        self.pushes.add(call)
        return call

    # --- who is told of what -------------------------------------------------------------------

    def _stirred_by_lifecycle(self, queue: str, cause: str) -> None:
        self.waking.stirred(queue, cause)
        self._tell_free(queue, None, 1)

    def carried_out(self, request: Operation[R], result: R) -> None:
        """Tell those whom an operation concerns."""
        for name, settings in request.changes(result).items():
            self.facts.changed(name, settings)
        for queue in request.wakes(result):
            self.stirred_by_admin(queue)

    def stirred_by_admin(self, queue: str | None) -> None:
        """Let parked pops look again, those of a queue or all."""
        if queue is None:
            self.waking.stirred_anywhere("admin")
        else:
            self.waking.stirred(queue, "admin")
        self.lifecycle.hurry()
        if self.peers is not None:
            self.peers.notify(NoticeKind.PARTITION_FREE, queue, None, 1)

    def _maintenance_changed(self) -> None:
        if self.failover is not None:
            self.failover.set_maintenance(self.maintenance.push)
        self.waiting.hold(self.maintenance.pop or not self.availability.is_up)

    def tell_settings(self) -> None:
        if self.peers is not None:
            self.peers.notify(NoticeKind.SETTINGS_CHANGED)

    def _tell_available(self, queue: str, partition: str | None, count: int) -> None:
        if self.peers is not None:
            self.peers.notify(NoticeKind.MESSAGE_AVAILABLE, queue, partition, count)

    def _tell_free(self, queue: str, partition: str | None, count: int) -> None:
        if self.peers is not None:
            self.peers.notify(NoticeKind.PARTITION_FREE, queue, partition, count)

    def _noticed(self, notice: Notice) -> None:
        if notice.kind is NoticeKind.SETTINGS_CHANGED:
            self.maintenance.refresh_soon()
        elif notice.queue is None:
            self.waking.stirred_anywhere("peer")
        elif notice.partition is None:
            self.waking.stirred(notice.queue, "peer")
        elif notice.kind is NoticeKind.MESSAGE_AVAILABLE:
            self.waking.pushed(notice.queue, {notice.partition: notice.count}, "peer")
        else:
            self.waking.freed(notice.queue, notice.partition, None, "peer")
