"""A worker: leases jobs, runs them, and answers, until it is told to stop.

One process of the operating system. Never two workers run one job: a lease that is lost ends what
runs under it, and an answer under it changes nothing.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from monarq.client.async_client import AsyncClient
from monarq.client.consuming import PASSING
from monarq.client.handlers import error_text
from monarq.client.schedules import Schedule
from monarq.clock import Clock, SystemClock
from monarq.errors import InvalidRequestError, LeaseError, MonarqError, NotFoundError
from monarq.job import CommandJob, TaskJob, read_job, read_task_job
from monarq.jobs.answers import Answers
from monarq.jobs.commands import GRACE_SECONDS
from monarq.jobs.confinement import Confinement
from monarq.jobs.crew import Crew
from monarq.jobs.cron import Scheduler
from monarq.jobs.keepers import keep_running
from monarq.jobs.leases import Leases, SharedLease
from monarq.jobs.live_output import LiveOutput
from monarq.jobs.loop_watch import LoopWatch
from monarq.jobs.pace import Pace, Stuck
from monarq.jobs.presence import Presence, new_worker_id
from monarq.jobs.running import Outcome, Runnable, TaskRun, run_command_job
from monarq.jobs.supervised import Supervisors
from monarq.jobs.threads import Threads
from monarq.model import (
    MAX_PAYLOAD_BYTES,
    Ack,
    AckStatus,
    ItemState,
    Message,
    Pop,
    Popped,
    QueueKind,
    Renew,
)

log = logging.getLogger("monarq.worker")

LEASE_SECONDS = 30.0
RENEW_SECONDS = 5.0
_WAIT_SECONDS = 20.0
_FIRST_PAUSE_SECONDS = 0.1
_LONGEST_PAUSE_SECONDS = 5.0
#: With a pop that is answered so long after its time, it is asked whether the lease still counts.
_LATE_SECONDS = 5.0
#: Tasks that one call leases at most.
_MOST_AT_ONCE = 500
#: More are leased when one in so many of those ahead is missing: few calls, and the next jobs are
#: on their way while the last ones run.
_WORTH_A_CALL = 4
#: What was leased ahead and waits for longer than from one look to the next is given back.
_LOOK_SECONDS = 0.5
#: Tasks that are looked up between two renewals at most, in case they were cancelled.
_MOST_LOOKED_UP = 200
_IS_COMMAND = "the item was enqueued as a shell command, and asks for a task"
_IS_NO_COMMAND = (
    "the item asks for a shell command, and was not enqueued as one: use `monarq enqueue`, on a "
    "queue that runs commands"
)
#: For what still runs when the worker ends otherwise than by being stopped.
_CLOSE_SECONDS = 1.0


class _Assignment(NamedTuple):
    """A job to be done, and by what right."""

    message: Message
    lease: SharedLease
    is_command: bool
    """Whether the store vouches for it as a shell command."""


class Worker:
    """`run` it; `stop` lets it finish what it has begun, `stop_now` ends that too and gives it
    back. With `burst` it ends by itself when there is nothing to do."""

    def __init__(
        self,
        client: AsyncClient,
        queues: Sequence[str],
        *,
        tasks: Mapping[str, Runnable] | None = None,
        schedules: Iterable[Schedule] = (),
        concurrency: int = 1,
        burst: bool = False,
        worker_id: str | None = None,
        default_timeout: float | None = None,
        clock: Clock | None = None,
        lease_seconds: float = LEASE_SECONDS,
        renew_seconds: float = RENEW_SECONDS,
        grace_seconds: float = GRACE_SECONDS,
        confinement: Confinement | None = None,
    ) -> None:
        if not queues:
            raise InvalidRequestError("a worker needs a queue to work on")
        self.id = worker_id or new_worker_id()
        self._link = client.link
        self._queues = list(queues)
        self._tasks = tasks or {}
        self._schedules = list(schedules)
        self._concurrency = concurrency
        self._burst = burst
        self._default_timeout = default_timeout
        self._clock = clock or SystemClock()
        self._lease_seconds = lease_seconds
        self._renew_seconds = renew_seconds
        self._grace_seconds = grace_seconds
        self._leases = Leases(client.link, lease_seconds=lease_seconds, renew_seconds=renew_seconds)
        self.presence = Presence(
            client.link,
            self.id,
            queues=self._queues,
            concurrency=concurrency,
            clock=self._clock,
            on_stop=self.stop,
        )
        self._stopping = asyncio.Event()
        self._stopping_now = asyncio.Event()
        self._crew: Crew[_Assignment] = Crew(concurrency, self._run, self._broken)
        self._pace = Pace(time.monotonic())
        self._answers = Answers(client.link, patience_seconds=lease_seconds)
        self._runs_commands: dict[str, bool] = {}
        self._supervisors = Supervisors()
        self._confinement = confinement or Confinement()
        self._threads = Threads("monarq-task")
        self._task_runs: dict[TaskRun, _Assignment] = {}
        self._left = 0
        """Jobs that did not end when they were told to."""

    def stop(self) -> None:
        if not self._stopping.is_set():
            log.info("worker %s stops when its jobs are done", self.id)
            self.presence.state = "stopping"
            self._stopping.set()
            self._give_back_last(self._crew.waiting)

    def stop_now(self) -> None:
        self.stop()
        self._stopping_now.set()
        for run in self._task_runs:
            run.stop()

    @property
    def leaves_running(self) -> int:
        """After `run`: how many tasks were given up that cannot be ended, but with the process."""
        return self._threads.busy + self._left

    async def run(self) -> None:
        await self.presence.tell()
        kept = {
            "renewing leases": self._leases.keep,
            "telling that the worker is there": self.presence.keep,
            "giving back jobs that cannot begin": self._keep_moving,
            "looking for cancelled jobs": self._keep_looking,
            "watching the event loop": LoopWatch(self._lease_seconds, self._tell_blocked).keep,
        }
        if self._schedules:
            scheduler = Scheduler(self._link, self._schedules, self._clock)
            kept["keeping schedules"] = scheduler.keep
        keepers = [asyncio.create_task(keep_running(name, keep)) for name, keep in kept.items()]
        try:
            await self._work()
            self._give_back_last(self._crew.waiting)
            await self._jobs_ended()
            await self._answers.done()
        finally:
            for keeper in keepers:
                keeper.cancel()
            await self._crew.close(_CLOSE_SECONDS)
            self._answers.close()
            self._supervisors.close()
            self._threads.shutdown()
            self.presence.state = "stopped"
            await self.presence.tell()
            await self.presence.forget_stop()

    # --- finding work ------------------------------------------------------------------------

    async def _work(self) -> None:
        pause = 0.0
        while not self._stopping.is_set():
            most = self._wanted()
            if not most:
                await self._unless_stopped(self._crew.one_ended())
                continue
            try:
                found = await self._look(most)
                pause = 0.0
            except PASSING as error:
                pause = min(max(2 * pause, _FIRST_PAUSE_SECONDS), _LONGEST_PAUSE_SECONDS)
                log.warning("no work to be had, trying again in %.1f s: %s", pause, error)
                await self._unless_stopped(asyncio.sleep(pause * random.uniform(0.5, 1.0)))
                continue
            if found:
                continue
            if self._burst and self._crew.is_idle:
                return
            if self._burst or self._crew.room <= 0:
                await self._unless_stopped(self._crew.one_ended())

    def _wanted(self) -> int:
        """How many jobs to lease now: as many as there is room for, and some ahead. None, while
        hardly any of those ahead has begun. Commands are never leased ahead."""
        ahead = self._pace.ahead(self._crew.begun, time.monotonic())
        if any(self._runs_commands.values()):
            ahead = 0
        wanted = self._crew.room + ahead
        is_enough = self._crew.room > 0 or wanted >= max(1, ahead // _WORTH_A_CALL)
        return wanted if is_enough else 0

    async def _look(self, most: int) -> int:
        """Start what is found; how many. None is leased ahead where it has to be waited for."""
        for queue in self._queues:
            popped = await self._pop(queue, 0.0, most)
            if popped.messages:
                return await self._begin(queue, popped)
        return 0 if self._burst or self._crew.room <= 0 else await self._wait_for_any()

    async def _wait_for_any(self) -> int:
        """Wait on all queues at once; the first to give something is worked on."""
        waiting = {
            asyncio.create_task(self._pop(queue, _WAIT_SECONDS, self._crew.room)): queue
            for queue in self._queues
        }
        stopped = asyncio.create_task(self._stopping.wait())
        try:
            await asyncio.wait({*waiting, stopped}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopped.cancel()
            for task in waiting:
                task.cancel()
            results = await asyncio.gather(*waiting, return_exceptions=True)
        started = 0
        errors = []
        for queue, result in zip(waiting.values(), results, strict=True):
            if isinstance(result, Exception):
                errors.append(result)
            elif isinstance(result, BaseException) or not result.messages:
                continue
            elif started:
                self._give_back(result)
            else:
                started = await self._begin(queue, result)
        # Only now: what other queues gave is under a lease.
        if errors:
            raise errors[0]
        return started

    async def _pop(self, queue: str, wait_seconds: float, most: int) -> Popped:
        # A command has a lease of its own, so that cancelling it is noticed; tasks share one.
        batch = 1 if await self._is_for_commands(queue) else min(most, _MOST_AT_ONCE)
        due = time.monotonic() + wait_seconds + _LATE_SECONDS
        popped = await self._link.pop(
            Pop(queue=queue, batch=batch, lease_seconds=self._lease_seconds, consumer=self.id),
            wait_seconds,
        )
        if popped.lease_id is not None and time.monotonic() >= due:
            return await self._if_still_ours(popped)
        return popped

    async def _if_still_ours(self, popped: Popped) -> Popped:
        """An answer that was held up for long may be of a lease that is over by now."""
        assert popped.lease_id is not None
        try:
            await self._link.renew(Renew(popped.lease_id, self._lease_seconds))
        except LeaseError as error:
            log.warning("jobs were leased, and told of too late to begin them: %s", error)
            return Popped(messages=[])
        return popped

    async def _begin(self, queue: str, popped: Popped) -> int:
        assert popped.lease_id is not None
        messages = popped.messages
        is_command = any(message.is_command for message in messages)
        self._runs_commands[queue] = is_command
        lease = SharedLease(self._leases, popped.lease_id, len(messages))
        if is_command and len(messages) > 1:
            # The queue was deleted and made again since the worker looked: tasks before, commands
            # now. A command has a lease of its own, and none is leased ahead.
            kept = 1 if self._crew.room > 0 else 0
            for message in messages[kept:]:
                self._answers.add(self._ack(message, lease, AckStatus.RELEASE, None), lease.let_go)
            messages = messages[:kept]
        self._crew.give([_Assignment(one, lease, one.is_command) for one in messages])
        return len(messages)

    async def _keep_moving(self) -> None:
        """Runs for ever. Jobs for which there is no room after all are for other workers to do."""
        stuck = Stuck()
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            if stuck.look(self._crew.begun, self._crew.waiting):
                self._give_back_last(-self._crew.room)
            for run, (message, lease, _) in self._task_runs.items():
                is_lost = lease.is_lost or message.id in lease.taken
                if is_lost and run.can_be_ended:
                    run.stop()

    async def _keep_looking(self) -> None:
        """Runs for ever. Jobs that were leased together share a lease, which goes on when one of
        them is cancelled: so those that run for long are looked up one by one."""
        while True:
            before = list(self._task_runs)
            await asyncio.sleep(self._renew_seconds)
            long = [
                assignment
                for run in before
                if (assignment := self._task_runs.get(run)) is not None
                and assignment.lease.is_shared
            ]
            for assignment in random.sample(long, min(len(long), _MOST_LOOKED_UP)):
                await self._look_up(assignment)

    async def _look_up(self, assignment: _Assignment) -> None:
        message, lease, _ = assignment
        try:
            item = await self._link.admin.get_item(message.id)
            is_ours = item.state is ItemState.LEASED and item.attempts == message.attempts
        except NotFoundError:
            is_ours = False
        except MonarqError:
            return
        if not is_ours and message.id not in lease.taken:
            lease.taken.add(message.id)
            log.warning("job %s was taken back, so it is ended", message.transaction_id)

    def _tell_blocked(self, seconds: float, task: asyncio.Task[Any] | None, stack: str) -> None:
        """Called from a thread."""
        runs = list(self._task_runs.items())
        found = [(run, one) for run, one in runs if run.is_run_by(task)]
        names = [f"task {run.name} (job {one.message.transaction_id})" for run, one in found]
        log.error(
            "%s has blocked the event loop for %.1f s: leases are not renewed meanwhile, and "
            "jobs of this worker may run elsewhere; let it await, or make it a plain function\n%s",
            ", ".join(names) or "something",
            seconds,
            stack.rstrip(),
        )

    async def _jobs_ended(self) -> None:
        """Until no job runs. Tasks that were told to end now have a moment to do so; those that
        still run after it are given back as they are."""
        ended = asyncio.ensure_future(self._crew.idle())
        now = asyncio.ensure_future(self._stopping_now.wait())
        try:
            await asyncio.wait({ended, now}, return_when=asyncio.FIRST_COMPLETED)
            while not ended.done():
                await asyncio.wait({ended}, timeout=self._grace_seconds)
                # A command is ended whatever it does, and is waited for.
                if len(self._task_runs) == self._crew.unfinished:
                    break
        finally:
            ended.cancel()
            now.cancel()
        for assignment in self._task_runs.values():
            message, lease, _ = assignment
            log.warning("job %s does not end, and is given back", message.transaction_id)
            released = self._ack(message, lease, AckStatus.RELEASE, None)
            self._end(assignment, None if lease.is_lost else released)
        self._left = len(self._task_runs)

    def _give_back_last(self, jobs: int) -> None:
        for message, lease, _ in self._crew.take_back(jobs):
            ack = self._ack(message, lease, AckStatus.RELEASE, None)
            self._answers.add(ack, lease.let_go)

    def _give_back(self, popped: Popped) -> None:
        release = Ack(status=AckStatus.RELEASE, lease_id=popped.lease_id)
        self._answers.add(release, lambda: None)

    async def _is_for_commands(self, queue: str) -> bool:
        """Guess whether a pop finds commands, which decides how many jobs to lease at once. The
        guess may be out of date. The mark of each item decides what runs."""
        known = self._runs_commands.get(queue)
        if known is None:
            try:
                info = await self._link.admin.get_queue(queue)
            except NotFoundError:
                return False
            if info.kind is not QueueKind.WORK:
                raise InvalidRequestError(
                    f"{queue!r} is an ordered queue: workers need a work queue"
                )
            known = self._runs_commands[queue] = info.options.runs_commands
        return known

    async def _unless_stopped(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        task = asyncio.ensure_future(coroutine)
        stopped = asyncio.ensure_future(self._stopping.wait())
        try:
            await asyncio.wait({task, stopped}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopped.cancel()
            if not task.done():
                task.cancel()

    # --- one job -----------------------------------------------------------------------------

    async def _run(self, assignment: _Assignment) -> None:
        ack = await self._attempt(assignment)
        if not self._left:
            self._end(assignment, ack)

    def _broken(self, assignment: _Assignment, error: BaseException) -> None:
        """Whatever goes wrong here, a job is not left to its lease."""
        if self._left:
            return
        message, lease, _ = assignment
        ack = None
        if not (lease.is_lost or self._crew.is_closed):
            why = f"the worker could not handle it: {error_text(error)}"
            if isinstance(error, asyncio.CancelledError):
                why = "it cancelled itself"
            ack = self._ack(message, lease, AckStatus.FAILED, why)
        self._end(assignment, ack)

    def _end(self, assignment: _Assignment, ack: Ack | None) -> None:
        message, lease, _ = assignment
        self.presence.ended(message, succeeded=_succeeded(ack))
        if ack is None:
            lease.let_go()
        else:
            # There is room for the next job while this one is answered.
            self._answers.add(ack, lease.let_go)

    async def _attempt(self, assignment: _Assignment) -> Ack | None:
        """Run it; how to answer, or None if the job is not ours any more."""
        message, lease, is_command = assignment
        if lease.is_over:
            return None
        if self._stopping_now.is_set():
            return self._ack(message, lease, AckStatus.RELEASE, None)
        try:
            job = (read_job if is_command else read_task_job)(message.payload)
        except InvalidRequestError as error:
            return self._ack(message, lease, AckStatus.DEAD, str(error))
        if isinstance(job, CommandJob) != is_command:
            why = _IS_COMMAND if is_command else _IS_NO_COMMAND
            return self._ack(message, lease, AckStatus.DEAD, why)
        self.presence.began(message, job.command if isinstance(job, CommandJob) else job.task)
        if isinstance(job, TaskJob):
            outcome = await self._run_task(job, assignment)
        else:
            outcome = await self._run_command(message, job, lease)
        if lease.is_lost or message.id in lease.taken:
            return None
        if outcome.stopped:
            return self._ack(message, lease, AckStatus.RELEASE, None)
        failure, result = _to_keep(outcome)
        status = AckStatus.COMPLETED if failure is None else AckStatus.FAILED
        return self._ack(message, lease, status, failure, result)

    async def _run_task(self, job: TaskJob, assignment: _Assignment) -> Outcome:
        run = TaskRun(job, self._tasks, threads=self._threads)
        self._task_runs[run] = assignment
        try:
            return await run.run()
        finally:
            del self._task_runs[run]

    async def _run_command(self, message: Message, job: CommandJob, lease: SharedLease) -> Outcome:
        live = LiveOutput(self._link, message.id, message.attempts)
        stop = lease.hold()
        stopping = asyncio.create_task(self._forward_stop(stop))
        try:
            return await run_command_job(
                job,
                supervisors=self._supervisors,
                lease=lease,
                confinement=self._confinement,
                stop=stop,
                on_output=live.add,
                default_timeout=self._default_timeout,
            )
        finally:
            stopping.cancel()
            await live.close()

    async def _forward_stop(self, stop: asyncio.Event) -> None:
        await self._stopping_now.wait()
        stop.set()

    def _ack(
        self,
        message: Message,
        lease: SharedLease,
        status: AckStatus,
        error: str | None,
        result: bytes | None = None,
    ) -> Ack:
        return Ack(
            status=status,
            transaction_id=message.transaction_id,
            partition_id=message.partition_id,
            lease_id=lease.id,
            error=None if error is None else error_text(error),
            result=result,
        )


def _to_keep(outcome: Outcome) -> tuple[str | None, bytes]:
    """Its error and result. A result that cannot be kept is a failure."""
    try:
        result = msgspec.json.encode(outcome.result)
        if len(result) <= MAX_PAYLOAD_BYTES:
            return outcome.error, result
        problem = f"it has {len(result)} bytes, more than {MAX_PAYLOAD_BYTES}"
    except Exception as unwritable:  # noqa: BLE001 - there are many things that JSON has not
        problem = str(unwritable)
    bare = msgspec.structs.replace(outcome.result, value=None, traceback=None)
    said = outcome.error or f"the result cannot be kept: {problem}"
    return said, msgspec.json.encode(bare)


def _succeeded(ack: Ack | None) -> bool | None:
    """None if the job was given back, or lost."""
    if ack is None or ack.status is AckStatus.RELEASE:
        return None
    return ack.status is AckStatus.COMPLETED
