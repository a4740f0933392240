"""Jobs: looking, cancelling, retrying, clearing."""

from __future__ import annotations

import codecs
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from monarq.cli.calling import Caller, RawOption, calling, confirm, say
from monarq.cli.formats import counted, duration
from monarq.cli.tables import printable, state_text
from monarq.cli.terminal import shown
from monarq.errors import NotFoundError
from monarq.job import ITEM_STATE, JobState, job_state
from monarq.model import ItemState

if TYPE_CHECKING:
    from monarq.cli.looking import Looker
    from monarq.jobs.presence import WorkerInfo

_AT_ONCE = 500
_FOLLOW_SECONDS = 0.25
_FINISHED = (ItemState.DONE, ItemState.DEAD, ItemState.CANCELLED)

QueueOption = Annotated[str | None, typer.Option("--queue", "-q", help="the job's queue")]
JobArgument = Annotated[str, typer.Argument(help="the job's id", show_default=False)]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="do not ask")]


def add_to(app: typer.Typer) -> None:
    panel = "Jobs"
    app.command("list", rich_help_panel=panel)(calling(list_jobs))
    app.command("show", rich_help_panel=panel)(calling(show))
    app.command("logs", rich_help_panel=panel)(calling(logs))
    app.command("cancel", rich_help_panel=panel)(calling(cancel))
    app.command("retry", rich_help_panel=panel)(calling(retry))
    app.command("status", rich_help_panel=panel)(calling(status))
    app.command("clear", rich_help_panel=panel)(calling(clear))


# --- looking -------------------------------------------------------------------------------


def list_jobs(
    caller: Caller,
    state: Annotated[
        JobState | None, typer.Option("--state", "-s", help="only jobs that are so")
    ] = None,
    queue: QueueOption = None,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="at most so many")] = 50,
) -> None:
    """List jobs: those that wait in the order in which they will run, then the others."""
    from monarq.cli.job_views import job_row, work_queues

    with caller.looking() as client:
        names = [queue] if queue is not None else work_queues(client)
        rows: list[dict[str, Any]] = []
        for name in names:
            rows += map(job_row, _items(client, name, state, limit - len(rows)))
            if len(rows) >= limit:
                break
    columns = ("id", "queue", "state", "priority", "effective", "attempts", "run_at", "command")
    which = "" if state is None else f"{state} "
    caller.rows(rows, columns, empty=f"no {which}jobs; `monarq enqueue 'echo hello'` makes one")


def _items(client: Looker, queue: str, state: JobState | None, limit: int) -> Iterator[Any]:
    """Up to `limit` jobs of a queue. Waiting ones first, in the order of their turn."""
    states = [ITEM_STATE[state]] if state is not None else list(_ORDER)
    for each in states:
        if limit <= 0:
            return
        if each is ItemState.READY:
            found = client.admin.list_items(queue, order="next", limit=min(limit, 1000)).rows
            yield from found
            limit -= len(found)
            continue
        after = None
        while limit > 0:
            page = client.admin.list_items(queue, state=each, limit=min(limit, 1000), after=after)
            for item in page.rows:
                if state is None or job_state(item) is state:
                    yield item
                    limit -= 1
            after = page.next
            if after is None:
                break


_ORDER = (
    ItemState.LEASED,
    ItemState.READY,
    ItemState.SCHEDULED,
    ItemState.DEAD,
    ItemState.CANCELLED,
    ItemState.DONE,
)


def show(
    caller: Caller, job: JobArgument, queue: QueueOption = None, raw: RawOption = False
) -> None:
    """Show a job: its state, and each attempt with exit code, duration and output."""
    from monarq.cli.job_views import find_job, job_detail

    with caller.looking() as client:
        item = find_job(client, job, queue)
        detail = job_detail(client.admin.get_item(item.id))
    caller.answer(detail, lambda: _print_job(detail, raw))


def _print_job(detail: dict[str, Any], raw: bool) -> None:
    for name, value in detail.items():
        if name not in ("history", "payload") and value is not None:
            text = state_text(value) if name == "state" else shown(str(value), raw=raw)
            print(f"{name.replace('_', ' '):16}{text}")
    for attempt in detail["history"]:
        code = "" if attempt["exit_code"] is None else f", exit code {attempt['exit_code']}"
        print(
            f"\nattempt {attempt['attempt']}: {attempt['outcome']}{code}, "
            f"{duration(attempt['seconds'])}, {attempt['started_at']}"
        )
        for name in ("error", "stdout", "stderr", "value", "traceback"):
            if attempt[name]:
                text = shown(str(attempt[name]), raw=raw).rstrip("\n").replace("\n", "\n    ")
                print(f"  {name}:\n    {text}")


def logs(
    caller: Caller,
    job: JobArgument,
    attempt: Annotated[
        int | None, typer.Option(min=1, help="which one; the last if left out")
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="go on until the job has ended")
    ] = False,
    queue: QueueOption = None,
    raw: RawOption = False,
) -> None:
    """Print what a job has printed; of one that runs, what it has printed so far."""
    from monarq.cli.job_views import find_job
    from monarq.job import read_result

    with caller.looking() as client:
        item = client.admin.get_item(find_job(client, job, queue).id)
        number = attempt or max(item.attempts, 1)
        finished = {row.attempt: row for row in item.history}
        if number in finished and not follow:
            result = read_result(finished[number].result)
            stdout, stderr = ("", "") if result is None else (result.stdout, result.stderr)
            caller.answer(
                {"attempt": number, "stdout": stdout, "stderr": stderr},
                lambda: _print_output(stdout, stderr, raw),
            )
            return
        has_begun = number <= item.attempts
        if attempt is not None and not has_begun and number not in finished:
            had = counted(item.attempts, "attempt")
            raise NotFoundError(f"job {job!r} has no attempt {number}: it has had {had}")
        if caller.as_json:
            part = client.admin.read_output(item.id, number)
            output = part.data.decode("utf-8", "replace")
            is_running = item.state is ItemState.LEASED and item.attempts == number
            shown = number if has_begun else None
            caller.answer({"attempt": shown, "output": output, "running": is_running}, "")
            return
        if not has_begun and not follow:
            say("it has not run yet; --follow waits for it")
            return
        _follow(client, item.id, number, follow=follow, raw=raw)


def _print_output(stdout: str, stderr: str, raw: bool) -> None:
    sys.stdout.write(shown(stdout, raw=raw))
    sys.stderr.write(shown(stderr, sys.stderr, raw=raw))
    if not stdout and not stderr:
        say("it printed nothing; `monarq show` tells how it ended")


def _follow(client: Looker, item_id: str, attempt: int, *, follow: bool, raw: bool) -> None:
    start = 0
    is_raw = raw or not sys.stdout.isatty()
    # A character may be cut in two.
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    while True:
        # Asked before reading: what was printed before it ended is read then.
        item = client.admin.get_item(item_id)
        is_over = item.state in _FINISHED or item.attempts > attempt
        part = client.admin.read_output(item_id, attempt, start=start)
        if is_raw:
            sys.stdout.buffer.write(part.data)
        else:
            sys.stdout.write(shown(decoder.decode(part.data)))
        sys.stdout.flush()
        start = part.next
        if part.data:
            continue
        if not follow or is_over:
            return
        time.sleep(_FOLLOW_SECONDS)


def status(caller: Caller) -> None:
    """Count jobs by state, and show the workers and how much they get done."""
    from monarq.cli.job_views import job_counts, work_queues
    from monarq.clock import SystemClock
    from monarq.jobs.processes import list_workers

    now = SystemClock().now()
    with caller.client(only_looks=True) as client:
        by_queue = {name: job_counts(client, name) for name in work_queues(client)}
        workers = [known for known in list_workers(client, now) if known.is_there]
    counts = {str(state): sum(each[state] for each in by_queue.values()) for state in JobState}
    running = [job for known in workers for job in known.info.running]
    throughput = round(sum(per_minute(known.info, now) for known in workers), 2)
    value = {
        "jobs": counts,
        "queues": [{"queue": name, **each} for name, each in by_queue.items()],
        "workers": [{"id": known.info.id, "state": known.state} for known in workers],
        "running": [{"job": job.job, "queue": job.queue, "what": job.what} for job in running],
        "jobs_per_minute": throughput,
    }

    def print_status() -> None:
        for state, count in counts.items():
            print(f"{state_text(state)}{'':{12 - len(state)}}{count:>10,}")
        print(
            f"\n{counted(len(workers), 'worker')}, {counted(len(running), 'job')} running, "
            f"{throughput:g} jobs a minute"
        )
        for known in workers:
            for job in known.info.running:
                print(f"  {printable(f'{known.info.id}: {job.job} ({job.what})')}")
        if not workers:
            print("`monarq worker start` starts one")

    caller.answer(value, print_status)


def per_minute(info: WorkerInfo, now: int) -> float:
    """What a worker has got done a minute, since it was started."""
    from monarq.times import parse_time

    seconds = max((now - parse_time(info.started_at, "started_at")) / 1_000_000, 1.0)
    return (info.completed + info.failed) * 60 / seconds


# --- changing ------------------------------------------------------------------------------


def cancel(caller: Caller, job: JobArgument, queue: QueueOption = None) -> None:
    """Take a job out of its queue; if it runs, it is ended within seconds."""
    from monarq.cli.job_views import find_job, job_row

    with caller.client() as client:
        item = client.admin.cancel_item(find_job(client, job, queue).id)
    caller.answer(job_row(item), f"cancelled {item.transaction_id}")


def retry(caller: Caller, job: JobArgument, queue: QueueOption = None) -> None:
    """Run a job again that is finished, dead, cancelled or waiting, with its attempts forgotten."""
    from monarq.cli.job_views import find_job, job_row

    with caller.client() as client:
        item = client.admin.retry_item(find_job(client, job, queue).id)
    caller.answer(job_row(item), f"{item.transaction_id} will run again")


def clear(
    caller: Caller,
    queue: QueueOption = None,
    yes: YesOption = False,
) -> None:
    """Remove all jobs of a queue (of all, if none is named), whatever their state."""
    from monarq.cli.job_views import work_queues

    with caller.client() as client:
        names = [queue] if queue is not None else work_queues(client)
        total = sum(client.admin.get_queue(name).counts.stored for name in names)
        if total:
            confirm(f"Remove {counted(total, 'job')} from {', '.join(names)}?", yes)
        # Clearing leaves what is dead: that goes with its dead letters.
        removed = {
            name: client.admin.clear_queue(name) + client.admin.purge_dead_letters(queue=name)
            for name in names
        }
    count = sum(removed.values())
    caller.answer({"removed": count, "queues": removed}, f"removed {counted(count, 'job')}")
