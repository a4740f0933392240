"""Workers: processes that run jobs."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from monarq.cli.calling import Caller, RawOption, calling, say
from monarq.errors import InvalidRequestError, NotFoundError

if TYPE_CHECKING:
    from monarq.client.tasks import Tasks
    from monarq.jobs.confinement import Confinement
    from monarq.jobs.processes import KnownWorker

app = typer.Typer(help="Start, stop and watch the processes that run jobs.", no_args_is_help=True)


def add_to(main: typer.Typer) -> None:
    main.add_typer(app, name="worker", rich_help_panel="Jobs")


_FOLLOW_SECONDS = 0.25
_START_SECONDS = 15.0

QueuesOption = Annotated[
    str | None, typer.Option("--queue", "-q", help="queues to work on, in this order: a,b")
]
AppOption = Annotated[
    str | None,
    typer.Option("--app", help="where the tasks are: module:client, such as shop.tasks:mq"),
]
ConcurrencyOption = Annotated[
    int, typer.Option(min=1, max=10_000, help="jobs that one worker runs at a time")
]
RunAsOption = Annotated[
    str | None,
    typer.Option(
        "--run-as",
        metavar="USER",
        help="run commands as this user; only root can",
        show_default=False,
    ),
]
MaxMemoryOption = Annotated[
    str | None,
    typer.Option(
        "--max-memory",
        metavar="SIZE",
        help="memory that each process of a command may use: 536870912, 512MiB, 2GiB",
        show_default=False,
    ),
]
MaxProcessesOption = Annotated[
    int | None,
    typer.Option(
        "--max-processes",
        min=1,
        max=1_000_000,
        help="processes that the user who runs commands may have at a time",
        show_default=False,
    ),
]
MaxCpuOption = Annotated[
    int | None,
    typer.Option(
        "--max-cpu-seconds",
        min=1,
        max=1_000_000_000,
        help="CPU time that each process of a command may use",
        show_default=False,
    ),
]
BurstOption = Annotated[bool, typer.Option("--burst", help="end when there is nothing to do")]
IdArgument = Annotated[str | None, typer.Argument(help="the worker's id", show_default=False)]


# --- start ---------------------------------------------------------------------------------


@app.command("start")
@calling
def start(
    caller: Caller,
    count: Annotated[int, typer.Option("--count", "-n", min=1, max=1000)] = 1,
    queue: QueuesOption = None,
    app_name: AppOption = None,
    concurrency: ConcurrencyOption = 1,
    detach: Annotated[
        bool, typer.Option("--detach", "-d", help="let them run on in the background")
    ] = False,
    burst: BurstOption = False,
    run_as: RunAsOption = None,
    max_memory: MaxMemoryOption = None,
    max_processes: MaxProcessesOption = None,
    max_cpu_seconds: MaxCpuOption = None,
) -> None:
    """Start worker processes. Without --detach they end with this command: Ctrl-C lets them finish
    the jobs that run, a second Ctrl-C ends those too and gives them back."""
    from monarq.cli.apps import load, where_jobs_go
    from monarq.cli.attending import Tie, attend
    from monarq.jobs import environment, processes
    from monarq.jobs.presence import new_worker_id

    _confinement(run_as, max_memory, max_processes, max_cpu_seconds)
    environment.restart_hidden(caller.variables)
    client_of_app, tasks = load(app_name)
    _queues(queue, tasks)
    # Arguments can be seen by everyone on the machine, and an address may hold a password.
    os.environ.update(caller.variables)
    caller = where_jobs_go(caller, client_of_app)
    arguments = _arguments(queue, app_name, concurrency, burst)
    for name, value in (
        ("--run-as", run_as),
        ("--max-memory", max_memory),
        ("--max-processes", max_processes),
        ("--max-cpu-seconds", max_cpu_seconds),
    ):
        arguments += [name, str(value)] if value is not None else []
    ids = [new_worker_id() for _ in range(count)]
    if not detach:
        tie = Tie()
        tied = {each: processes.start_tied(each, arguments, tie.end) for each in ids}
        code = attend(tied)
        tie.close()
        raise typer.Exit(code)
    data = _data_directory()
    started = {
        each: processes.start_detached(each, arguments, processes.log_file(data, each))
        for each in ids
    }
    with caller.client() as client:
        ended = processes.wait_until_there(client, started, _START_SECONDS)
    if ended is not None:
        raise InvalidRequestError(
            f"worker {ended} ended at once: `monarq worker logs {ended}` says why"
        )
    caller.answer({"workers": ids}, "\n".join(f"started {worker_id}" for worker_id in ids))


def _arguments(queue: str | None, app_name: str | None, concurrency: int, burst: bool) -> list[str]:
    arguments = ["--concurrency", str(concurrency)]
    if queue is not None:
        arguments += ["--queue", queue]
    if app_name is not None:
        arguments += ["--app", app_name]
    return [*arguments, "--burst"] if burst else arguments


def _confinement(
    run_as: str | None,
    max_memory: str | None,
    max_processes: int | None,
    max_cpu_seconds: int | None,
) -> Confinement:
    from monarq.cli.formats import parse_size
    from monarq.jobs.confinement import Confinement, find_user

    return Confinement(
        user=None if run_as is None else find_user(run_as),
        max_memory=None if max_memory is None else parse_size(max_memory, "--max-memory"),
        max_processes=max_processes,
        max_cpu_seconds=max_cpu_seconds,
    )


def _data_directory() -> Path:
    from monarq.places import data_directory
    from monarq.settings_loading import load

    return data_directory(load(check=False).settings)


# --- run -----------------------------------------------------------------------------------


@app.command("run", hidden=True)
@calling
def run(
    caller: Caller,
    worker_id: Annotated[str, typer.Option("--id")],
    queue: QueuesOption = None,
    app_name: AppOption = None,
    concurrency: ConcurrencyOption = 1,
    burst: BurstOption = False,
    tied_to: Annotated[
        int | None, typer.Option(help="a pipe that closes when this worker is to stop")
    ] = None,
    run_as: RunAsOption = None,
    max_memory: MaxMemoryOption = None,
    max_processes: MaxProcessesOption = None,
    max_cpu_seconds: MaxCpuOption = None,
) -> None:
    """Be one worker, in this process."""
    from monarq.cli.apps import load, where_jobs_go
    from monarq.jobs import linux

    linux.hide_process()
    confinement = _confinement(run_as, max_memory, max_processes, max_cpu_seconds)
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Formatter("%(asctime)s %(levelname)-7s %(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    # It tells of every request, by which a worker's own words would not be found.
    logging.getLogger("httpx").setLevel(logging.WARNING)
    client_of_app, tasks = load(app_name)
    queues = _queues(queue, tasks)
    caller = where_jobs_go(caller, client_of_app)
    asyncio.run(_work(caller, worker_id, queues, tasks, concurrency, burst, tied_to, confinement))


class _Formatter(logging.Formatter):
    """Writes what the broker, jobs and records say without what a terminal would obey."""

    def format(self, record: logging.LogRecord) -> str:
        from monarq.cli.terminal import shown

        return shown(super().format(record), sys.stderr)


async def _work(
    caller: Caller,
    worker_id: str,
    queues: list[str],
    tasks: Tasks | None,
    concurrency: int,
    burst: bool,
    tied_to: int | None,
    confinement: Confinement,
) -> None:
    from monarq.cli.attending import when_untied
    from monarq.cli.job_lines import ToldPresence
    from monarq.client.async_client import AsyncClient
    from monarq.clock import SystemClock
    from monarq.jobs.worker import Worker

    async with AsyncClient(caller.address, name=worker_id, **caller.options) as client:
        worker = Worker(
            client,
            queues,
            tasks=tasks,
            schedules=tasks.schedules.values() if tasks is not None else (),
            concurrency=concurrency,
            burst=burst,
            worker_id=worker_id,
            confinement=confinement,
        )
        worker.presence = ToldPresence(
            client.link,
            worker_id,
            queues=queues,
            concurrency=concurrency,
            clock=SystemClock(),
            on_stop=worker.stop,
        )
        loop = asyncio.get_running_loop()

        def interrupt() -> None:
            if worker.presence.state == "running":
                worker.stop()
            else:
                worker.stop_now()

        # Being asked to stop twice, as by two people, must not end a job.
        loop.add_signal_handler(signal.SIGTERM, worker.stop)
        loop.add_signal_handler(signal.SIGINT, interrupt)
        if tied_to is not None:
            when_untied(tied_to, worker.stop)
        logging.getLogger("monarq.worker").info(
            "worker %s works on %s", worker_id, ", ".join(queues)
        )
        await worker.run()
    if worker.leaves_running:
        _end_without(worker.leaves_running)


def _end_without(tasks: int) -> NoReturn:
    """All that Python does at its end could meet a task that cannot be ended, and wait for it."""
    log = logging.getLogger("monarq.worker")
    log.warning("tasks that were given up still run, and end with this process: %d", tasks)
    logging.shutdown()
    sys.stdout.flush()
    os._exit(0)


def _queues(named: str | None, tasks: Tasks | None) -> list[str]:
    from monarq.job import DEFAULT_QUEUE

    if named is None:
        return tasks.queues if tasks is not None else [DEFAULT_QUEUE]
    queues = [part.strip() for part in named.split(",") if part.strip()]
    if not queues:
        raise InvalidRequestError("--queue must name a queue")
    return queues


# --- the rest ------------------------------------------------------------------------------


@app.command("list")
@calling
def list_workers(
    caller: Caller,
    everyone: Annotated[
        bool, typer.Option("--all", help="also those that stopped or were lost")
    ] = False,
) -> None:
    """List workers, with what they run."""
    known = [worker for worker in _known(caller) if everyone or worker.state != "stopped"]
    caller.rows(
        [_row(worker) for worker in known],
        ("id", "state", "host", "pid", "queues", "running", "completed", "failed", "heartbeat_at"),
        empty="no workers; `monarq worker start` starts one",
    )


def _known(caller: Caller) -> list[KnownWorker]:
    from monarq.clock import SystemClock
    from monarq.jobs.processes import list_workers as list_known

    with caller.client(only_looks=True) as client:
        return list_known(client, SystemClock().now())


def _row(worker: KnownWorker) -> dict[str, Any]:
    info = worker.info
    return {
        "id": info.id,
        "state": worker.state,
        "host": info.host,
        "pid": info.process.pid,
        "queues": info.queues,
        "running": [job.job for job in info.running],
        "completed": info.completed,
        "failed": info.failed,
        "started_at": info.started_at,
        "heartbeat_at": info.heartbeat_at,
    }


@app.command("stop")
@calling
def stop(
    caller: Caller,
    worker: IdArgument = None,
    everyone: Annotated[bool, typer.Option("--all", help="all workers")] = False,
    timeout: Annotated[float, typer.Option(min=0, help="seconds to wait for them")] = 30.0,
    force: Annotated[
        bool, typer.Option("--force", help="kill those that have not stopped by then")
    ] = False,
) -> None:
    """Stop workers, wherever they run. They finish the jobs that run first."""
    from monarq.clock import SystemClock
    from monarq.jobs import processes

    if (worker is None) != everyone:
        raise InvalidRequestError("name a worker, or say --all")
    clock = SystemClock()
    with caller.client() as client:
        there = [known for known in processes.list_workers(client, clock.now()) if known.is_there]
        chosen = [known for known in there if everyone or known.info.id == worker]
        if worker is not None and not chosen:
            raise NotFoundError(f"no worker {worker!r} is running; `monarq worker list` shows them")
        unproven = processes.ask_to_stop(client, chosen)
        for known in unproven:
            say(
                f"worker {known.info.id} was asked to stop through the store only: no process of "
                "this user here is provably that worker"
            )
        ids = {known.info.id for known in chosen}
        left = processes.wait_until_gone(client, ids, timeout, clock.now())
        killed = [known.info.id for known in left if force and processes.kill(known)]
    still = [known.info.id for known in left if known.info.id not in killed]
    stopped = sorted(ids - set(killed) - set(still))
    lines = [f"stopped {each}" for each in stopped] + [f"killed {each}" for each in killed]
    if not chosen:
        lines = ["no workers are running"]
    caller.answer(
        {"stopped": stopped, "killed": killed, "running": still}, "\n".join(lines) or "none stopped"
    )
    if still:
        todo = "no process of this user here is provably theirs" if force else "--force kills"
        say(f"still running: {', '.join(still)} (--timeout waits longer, {todo})")
        raise typer.Exit(1)


@app.command("logs")
@calling
def logs(
    caller: Caller,
    worker: Annotated[str, typer.Argument(help="the worker's id", show_default=False)],
    follow: Annotated[bool, typer.Option("--follow", "-f", help="go on as it comes")] = False,
    raw: RawOption = False,
) -> None:
    """Print the log of a worker that was started with --detach on this machine."""
    from monarq.cli.terminal import shown

    path = _data_directory() / "workers" / f"{Path(worker).name}.log"
    if not path.exists():
        raise NotFoundError(f"there is no log of a worker {worker!r} on this machine")
    if caller.as_json:
        caller.answer({"worker": worker, "log": path.read_text(errors="replace")}, "")
        return
    with path.open(errors="replace") as file:
        while True:
            if text := file.read():
                sys.stdout.write(shown(text, raw=raw))
                sys.stdout.flush()
            elif not follow:
                return
            else:
                time.sleep(_FOLLOW_SECONDS)
