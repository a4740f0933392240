"""The broker: one loop that stands between callers and the store.

Everything is handed to the part that does it: calls to the inboxes, pops that wait to `waiting`,
timed work to `lifecycle`, pushes without a store to `failover`, what others should know to `peers`.
It runs on one loop and belongs to it; it knows nothing of HTTP.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

from monarq.broker.availability import Opener
from monarq.broker.batching import fail
from monarq.broker.composed import carry_out
from monarq.broker.failover import Route
from monarq.broker.inboxes import AckCall, RenewCall, TransactionCall
from monarq.broker.measures import Measures
from monarq.broker.parts import Parts
from monarq.broker.peers import Peers
from monarq.broker.places import QUEUED, AckAndPopCall, PopCall
from monarq.broker.pushes import ChainedCall, ChainedPush, PushCall, payload_bytes
from monarq.clock import Clock, SystemClock, micros
from monarq.config import Settings
from monarq.errors import (
    ConflictError,
    DrainingError,
    MonarqError,
    OverloadedError,
    StoreUnavailableError,
)
from monarq.health import BufferHealth, Health, State
from monarq.model import (
    Ack,
    Acked,
    AckStatus,
    LifecycleReport,
    Pop,
    Popped,
    Push,
    Pushed,
    Renew,
    Renewed,
    Transaction,
    TransactionDone,
)
from monarq.operations.calls import Calls
from monarq.operations.operation import Operation
from monarq.store.contract import Outcome, Store
from monarq.store.validation import check_pop

log = logging.getLogger(__name__)

C = TypeVar("C", bound=asyncio.Future[Any])
P = TypeVar("P", bound=PopCall)
R = TypeVar("R")


class Broker(Calls):
    """See the module. Made by `start`, on the loop that uses it, and ended by `close`.

    The server, the embedded client and what works through them (jobs, commands, test brokers) make
    brokers in no other way. A process may have several, on one loop or more, on one store or more:
    each has parts and a store object of its own, and no module or class keeps state of theirs.

    `submit_…` answer with a future, and whoever cancels it is out of it at once: a push or ack
    that has not left is dropped, a pop frees its place and what it was leased is given back.
    """

    def __init__(
        self, opener: Opener, settings: Settings, clock: Clock, peers: Peers | None
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._parts = parts = Parts(opener, settings, clock, peers)
        self._clock = clock
        self._started_at = self._loop.time()
        self._tickets = 0
        self._sound_pop: Pop | None = None
        """The last that was checked."""
        self._is_started = False
        self._is_draining = False
        self._closing: asyncio.Task[None] | None = None
        parts.pops.give_back_to(self.give_back)

    @classmethod
    async def start(
        cls,
        opener: Opener,
        settings: Settings,
        *,
        clock: Clock | None = None,
        buffer_dir: Path | None = None,
        peers: Peers | None = None,
    ) -> Broker:
        """Open the store with `opener` and serve. A store that cannot be reached is tried again
        and again, and pushes go to `buffer_dir` meanwhile; other errors of the opener are raised.
        """
        broker = cls(opener, settings, clock or SystemClock(), peers)
        try:
            await broker._parts.start(buffer_dir)
        except BaseException:
            await broker._parts.close()
            raise
        broker._is_started = True
        return broker

    # --- the hot path ------------------------------------------------------------------

    def submit_push(self, push: Push, *, size: int | None = None) -> asyncio.Future[list[Pushed]]:
        """`size`: how many bytes it holds, if the caller knows."""
        call = PushCall(loop=self._loop)
        call.request = push
        call.count = len(push.items)
        call.size = payload_bytes(push.items) if size is None else size
        if self._is_draining:
            return self._refused(call)
        self._parts.pushes.add(call)
        return call

    def submit_chained_push(
        self, push: Push, *, mark: str | None, after: str | None, size: int
    ) -> asyncio.Future[list[Pushed]]:
        """Under a mark of the caller's own, and only after the push with that other mark, as the
        store's contract says. It is never buffered."""
        call = ChainedCall(loop=self._loop)
        call.request = ChainedPush(push, mark, after)
        call.count = len(push.items)
        call.size = size
        return self._submit_unbuffered(call, self._parts.chained)

    def submit_pop(self, pop: Pop, wait_seconds: float = 0.0) -> asyncio.Future[Popped]:
        """Answers when there is something, and after `wait_seconds` with nothing."""
        parts = self._parts
        call = self._begun(PopCall(loop=self._loop), pop)
        if self._is_draining:
            return self._refused(call)
        if parts.availability.error is not None:
            fail(call, StoreUnavailableError(str(parts.availability.error)))
        elif wait_seconds <= 0:
            if parts.maintenance.pop:
                self._find_nothing(call)
            else:
                parts.pops.add(call)
        else:
            self._wait(call, wait_seconds)
        return call

    def _find_nothing(self, call: PopCall) -> None:
        """Answer a pop during maintenance; a malformed one is refused as ever."""
        try:
            check_pop(call.request)
        except MonarqError as error:
            fail(call, error)
        else:
            call.set_result(Popped(messages=[]))

    def submit_ack_and_pop(
        self, acks: Sequence[Ack], pop: Pop
    ) -> asyncio.Future[tuple[list[Outcome[Acked]], Outcome[Popped]]]:
        """The acks, and then a pop of what is there. It does not wait, and takes nothing that
        others wait for already. A pop that is malformed is an error, and nothing is done."""
        call = self._begun(AckAndPopCall(loop=self._loop), pop)
        call.acks = acks
        try:
            # Whoever goes from message to message asks for the same again and again.
            if pop is not self._sound_pop:
                check_pop(pop)
                self._sound_pop = pop
        except MonarqError as error:
            fail(call, error)
            return call
        self._parts.measures.ack.calls += 1
        return self._submit(call, self._parts.pops)

    def _begun(self, call: P, pop: Pop) -> P:
        self._tickets += 1
        call.ticket = self._tickets
        call.request = pop
        call.count = 1
        call.size = call.slice = call.seen = 0
        call.place = None
        call.state = QUEUED
        call.cause = ""
        return call

    def _wait(self, call: PopCall, wait_seconds: float) -> None:
        parts = self._parts
        if parts.waiting.total >= parts.settings.parked_max or parts.pops.is_full:
            parts.measures.overloaded += 1
            fail(call, OverloadedError("too many pops are waiting: try again in a moment"))
            return
        if parts.waiting.enter(call, micros(wait_seconds)):
            parts.pops.add(call)
            return
        parts.measures.pop.calls += 1
        try:
            check_pop(call.request)
        except MonarqError as error:
            fail(call, error)
            parts.waiting.failed(call)

    def submit_acks(self, acks: Sequence[Ack]) -> asyncio.Future[list[Outcome[Acked]]]:
        call = AckCall(loop=self._loop)
        call.request = acks
        call.count = len(acks)
        call.size = 0
        return self._submit(call, self._parts.acks)

    def submit_renews(self, renews: Sequence[Renew]) -> asyncio.Future[list[Outcome[Renewed]]]:
        call = RenewCall(loop=self._loop)
        call.request = renews
        call.count = len(renews)
        call.size = 0
        return self._submit(call, self._parts.renews)

    def submit_transaction(self, transaction: Transaction) -> asyncio.Future[TransactionDone]:
        call = TransactionCall(loop=self._loop)
        call.request = transaction
        call.count = len(transaction.operations)
        call.size = 0
        if any(isinstance(each, Push) for each in transaction.operations):
            return self._submit_unbuffered(call, self._parts.transactions)
        return self._submit(call, self._parts.transactions)

    def _submit_unbuffered(self, call: C, inbox: Any) -> C:
        """A push that the buffer cannot take must not pass those in it."""
        failover = self._parts.failover
        if failover is not None and failover.route is not Route.DIRECT:
            fail(call, StoreUnavailableError("pushes go to the buffer now: try again later"))
            return call
        return self._submit(call, inbox)

    def _submit(self, call: C, inbox: Any) -> C:
        if self._is_draining:
            return self._refused(call)
        error = self._parts.availability.error
        if error is not None:
            fail(call, StoreUnavailableError(str(error)))
        else:
            inbox.add(call)
        return call

    def _refused(self, call: C) -> C:
        fail(call, DrainingError("the broker is shutting down: try another one"))
        return call

    async def push(self, push: Push) -> list[Pushed]:
        return await self.submit_push(push)

    async def pop(self, pop: Pop, wait_seconds: float = 0.0) -> Popped:
        future = self.submit_pop(pop, wait_seconds)
        try:
            return await future
        except asyncio.CancelledError:
            # It was answered in the turn in which its caller was cancelled.
            if future.done() and not future.cancelled() and future.exception() is None:
                self.give_back(future.result(), pop.group)
            raise

    async def ack_and_pop(
        self, acks: Sequence[Ack], pop: Pop
    ) -> tuple[list[Outcome[Acked]], Outcome[Popped]]:
        future = self.submit_ack_and_pop(acks, pop)
        try:
            return await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled() and future.exception() is None:
                _, popped = future.result()
                if isinstance(popped, Popped):
                    self.give_back(popped, pop.group)
            raise

    async def ack(self, acks: Sequence[Ack]) -> list[Outcome[Acked]]:
        return await self.submit_acks(acks)

    async def renew(self, renews: Sequence[Renew]) -> list[Outcome[Renewed]]:
        return await self.submit_renews(renews)

    async def transaction(self, transaction: Transaction) -> TransactionDone:
        return await self.submit_transaction(transaction)

    def push_later(self, push: Push, wait_ms: float, max_count: int) -> list[Pushed]:
        """Answered before it is durable: kept in memory until the time has passed or so many
        have come, and lost if the process dies before."""
        if self._is_draining:
            raise DrainingError("the broker is shutting down: try another one")
        return self._parts.deferred.push(push, wait_ms, max_count)

    def give_back(self, popped: Popped, group: str) -> None:
        """Nobody received this: release its lease, in the background and uncounted."""
        if popped.lease_id is None:
            return
        self._parts.measures.pop_steps["given_back"] += 1
        self._parts.release(Ack(status=AckStatus.RELEASE, lease_id=popped.lease_id, group=group))

    # --- operations --------------------------------------------------------------------

    async def call(self, request: Operation[R], *, commands: bool = True) -> R:
        """Carry out an operation: by its handler in the broker, or in the store.

        Without `commands` the caller may not work on shell commands.
        """
        now = self._clock.now()
        with self._watched_store() as store:
            result = await carry_out(store, request, now=now, commands=commands)
        self._parts.carried_out(request, result)
        return result

    async def restore(self, push: Push) -> list[Pushed]:
        """Store exported messages again, as `Store.restore` does."""
        with self._watched_store() as store:
            restored = await store.restore(push)
        self._parts.stirred_by_admin(None)
        return restored

    async def skip(self, queue: str, group: str, partition: str, seq: int, error: str) -> int:
        """Let a group pass over a message, as `Store.skip` does."""
        with self._watched_store() as store:
            lag = await store.skip(queue, group, partition, seq, error)
        self._parts.stirred_by_admin(queue)
        return lag

    async def advance_time(self) -> LifecycleReport:
        """Take a step of the lifecycle now: for tests that move the clock."""
        with self._watched_store() as store:
            report = await store.lifecycle()
        self._parts.stirred_by_admin(None)
        return report

    @contextlib.contextmanager
    def _watched_store(self) -> Iterator[Store]:
        """Yield the store, and note if it turns out to be away."""
        store = self.store
        try:
            yield store
        except StoreUnavailableError as error:
            self._parts.availability.failed(error)
            raise

    # --- everything else -----------------------------------------------------------------

    @property
    def store(self) -> Store:
        """The store, for calls that look; `StoreUnavailableError` while there is none.

        Pops that wait here do not learn of what a call of the store makes available.
        """
        return self._parts.availability.get()

    @property
    def measures(self) -> Measures:
        parts = self._parts
        parts.measures.pops_parked = parts.waiting.parked
        parts.measures.pops_pending = len(parts.pops)
        failover = parts.failover
        if failover is not None:
            parts.measures.replayed = failover.replayer.replayed
        return parts.measures

    @property
    def state(self) -> State:
        if self._is_draining:
            return State.DRAINING
        if not self._is_started:
            return State.STARTING
        if not self._parts.availability.is_up:
            return State.STORE_DOWN
        maintenance = self._parts.maintenance
        return State.MAINTENANCE if maintenance.push or maintenance.pop else State.SERVING

    def health(self) -> Health:
        parts = self._parts
        error = parts.availability.error
        peers = parts.peers
        counters = None
        if peers is not None:
            names = ("sent", "unsent", "received", "notices", "malformed", "unauthenticated")
            counters = {name: getattr(peers.counters, name) for name in (*names, "replayed", "own")}
        return Health(
            state=self.state,
            store_ok=error is None,
            store_error=None if error is None else str(error),
            buffer=self._buffer_health(),
            peers=counters,
            parked=parts.waiting.parked,
            waiting={name: len(inbox) for name, inbox in parts.inboxes().items()},
            maintenance_push=parts.maintenance.push,
            maintenance_pop=parts.maintenance.pop,
            uptime_seconds=self._loop.time() - self._started_at,
        )

    def _buffer_health(self) -> BufferHealth | None:
        failover = self._parts.failover
        if failover is None:
            return None
        state = failover.buffer.state
        return BufferHealth(
            route=failover.route.value,
            bytes=state.bytes,
            records=state.records,
            files=state.files,
            oldest=state.oldest_at,
            set_aside=state.set_aside,
            others=state.others,
            failing=state.failing,
        )

    async def set_maintenance(self, push: bool | None = None, pop: bool | None = None) -> None:
        """Move the switches, for all brokers on this store; None leaves one as it is."""
        if push and self._parts.failover is None:
            raise ConflictError("there is no push buffer, which maintenance of pushes needs")
        await self._parts.maintenance.set(push, pop)
        self._parts.tell_settings()

    @property
    def maintenance_push(self) -> bool:
        return self._parts.maintenance.push

    @property
    def maintenance_pop(self) -> bool:
        return self._parts.maintenance.pop

    # --- the end ---------------------------------------------------------------------------

    def drain(self) -> None:
        """No new calls from now on; pops that wait are answered empty."""
        if not self._is_draining:
            self._is_draining = True
            self._parts.deferred.flush()
            self._parts.waiting.close()

    async def close(self, drain_seconds: float = 30.0) -> None:
        """Finish what is under way, for so long at most; then give the rest up and let go of
        everything. Twice is harmless."""
        self.drain()
        if self._closing is None:
            self._closing = self._loop.create_task(self._close(drain_seconds))
        await asyncio.shield(self._closing)

    async def _close(self, drain_seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(drain_seconds):
                await self._parts.idle()
        await self._parts.close()
