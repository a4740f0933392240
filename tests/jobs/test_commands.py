import asyncio
import contextlib
import os
import resource
import signal
import subprocess
import sys
import textwrap
import time
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import psutil
import pytest

from monarq.jobs import linux, supervisor
from monarq.jobs.commands import Command, Ended, Stream, run_command
from monarq.jobs.supervised import Supervisors


@pytest.fixture
async def supervisors() -> AsyncIterator[Supervisors]:
    supervisors = Supervisors()
    yield supervisors
    supervisors.close()


async def run(supervisors: Supervisors, line: str, **options: object) -> tuple[Ended, str, str]:
    said = {Stream.STDOUT: b"", Stream.STDERR: b""}

    def take(stream: Stream, data: bytes) -> None:
        said[stream] += data

    stop = options.pop("stop", None)
    grace_seconds = options.pop("grace_seconds", 0.5)
    ended = await run_command(
        Command(line, **options),  # type: ignore[arg-type]
        take,
        supervisors=supervisors,
        stop=stop,  # type: ignore[arg-type]
        grace_seconds=grace_seconds,  # type: ignore[arg-type]
    )
    return ended, said[Stream.STDOUT].decode(), said[Stream.STDERR].decode()


def wait_until_gone(pid: int) -> None:
    deadline = time.monotonic() + 10
    while _is_alive(pid):
        assert time.monotonic() < deadline, f"process {pid} is still there"
        time.sleep(0.01)


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def _is_alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


async def test_exit_code_and_both_outputs_are_told(supervisors: Supervisors) -> None:
    ended, out, err = await run(supervisors, "echo good; echo bad >&2; exit 3")
    assert (ended.exit_code, out, err) == (3, "good\n", "bad\n")
    assert ended.error == "exit code 3"


async def test_success_has_no_error(supervisors: Supervisors) -> None:
    ended, _, _ = await run(supervisors, "true")
    assert (ended.exit_code, ended.error) == (0, None)


async def test_output_comes_while_the_command_runs(
    supervisors: Supervisors, tmp_path: Path
) -> None:
    fifo = tmp_path / "go-on"
    os.mkfifo(fifo)
    first = asyncio.Event()
    running = asyncio.ensure_future(
        run_command(
            Command(f"echo first; read line < {fifo}; echo $line"),
            lambda stream, data: first.set(),
            supervisors=supervisors,
        )
    )
    await asyncio.wait_for(first.wait(), 10)
    assert not running.done()
    await asyncio.to_thread(fifo.write_text, "second\n")
    assert (await running).exit_code == 0


async def test_a_command_that_is_not_there_fails_with_a_clear_error(
    supervisors: Supervisors,
) -> None:
    ended, _, err = await run(supervisors, "no-such-command-here")
    assert ended.exit_code == 127
    assert ended.error == "exit code 127: command not found"
    assert "no-such-command-here" in err


async def test_a_file_that_is_no_program_fails_with_a_clear_error(
    supervisors: Supervisors, tmp_path: Path
) -> None:
    (tmp_path / "data").write_text("x")
    ended, _, _ = await run(supervisors, "./data", cwd=str(tmp_path))
    assert ended.error == "exit code 126: command cannot be executed"


async def test_a_missing_working_directory_fails_with_a_clear_error(
    supervisors: Supervisors,
) -> None:
    ended, _, _ = await run(supervisors, "true", cwd="/no/such/directory")
    assert ended.exit_code is None
    assert "/no/such/directory does not exist" in (ended.error or "")


@pytest.mark.parametrize(
    ("cwd", "said"),
    [
        ("/" + "x" * 5000, "File name too long"),
        ("/a\0b", "null byte"),
        ("/etc/passwd", "Not a directory: '/etc/passwd'"),
    ],
    ids=["too long", "nul", "a file"],
)
async def test_a_working_directory_that_cannot_be_looked_at_fails_with_a_clear_error(
    supervisors: Supervisors, cwd: str, said: str
) -> None:
    ended, _, _ = await run(supervisors, "true", cwd=cwd)
    assert ended.exit_code is None
    assert said in (ended.error or "")


async def test_a_line_with_a_nul_fails_with_a_clear_error(supervisors: Supervisors) -> None:
    ended, _, _ = await run(supervisors, "echo a\0b")
    assert ended.exit_code is None
    assert (ended.error or "").startswith("cannot start:")


async def test_a_worker_with_very_many_open_files_runs_commands(supervisors: Supervisors) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, hard), hard))
    with contextlib.ExitStack() as stack:
        stack.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        for _ in range(1100):
            stack.callback(os.close, os.open(os.devnull, os.O_RDONLY))
        ended, out, _ = await run(supervisors, "echo done")
    assert (ended.error, out) == (None, "done\n")


#: A worker in a directory that its user may not read, as after `sudo -u` in the home of root.
_SHUT_OUT = """
import importlib.util, json, os, socket, sys
program, directory = sys.argv[1:]
spec = importlib.util.spec_from_file_location("supervisor", program)
supervisor = importlib.util.module_from_spec(spec)
spec.loader.exec_module(supervisor)
os.chdir(directory)
os.chmod(directory, 0)
if os.geteuid() == 0:
    # All that is needed is imported by now: that user may not be allowed to read it.
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
ours, theirs = socket.socketpair()
if os.fork() == 0:
    ours.close()
    supervisor._Supervisor(theirs).run()
    os._exit(0)
theirs.close()
answers = ours.makefile()
json.loads(answers.readline())
for cwd in (None, "/", None):
    request = {"line": "pwd", "env": {}, "cwd": cwd, "user": None, "limits": {}}
    body = json.dumps(request).encode()
    socket.send_fds(ours, [b"R" + len(body).to_bytes(4, "big")], [1, 2])
    ours.sendall(body)
    print(json.loads(answers.readline())["status"], flush=True)
"""


def test_commands_run_where_the_worker_may_not_read_its_own_directory(tmp_path: Path) -> None:
    directory = tmp_path / "shut"
    directory.mkdir()
    try:
        said = subprocess.run(
            [sys.executable, "-c", _SHUT_OUT, str(supervisor.__file__), str(directory)],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    finally:
        directory.chmod(0o700)
    assert said.stdout.split() == [str(directory), "0", "/", "0", str(directory), "0"], said.stderr


def test_a_fork_that_fails_leaves_no_file_open(monkeypatch: pytest.MonkeyPatch) -> None:
    def fork() -> int:
        raise BlockingIOError("no more processes")

    monkeypatch.setattr(os, "fork", fork)
    one = object.__new__(supervisor._Supervisor)
    before = len(list(Path("/dev/fd").iterdir()))
    with pytest.raises(BlockingIOError):
        one._fork({}, ())
    assert len(list(Path("/dev/fd").iterdir())) == before


async def test_a_time_out_ends_the_command_and_its_children(supervisors: Supervisors) -> None:
    ended, out, _ = await run(supervisors, "sleep 600 & echo $!; sleep 600", timeout=1.5)
    assert ended.timed_out
    assert ended.error == "timed out after 1.5 s"
    await asyncio.to_thread(wait_until_gone, int(out))


async def test_a_command_that_ignores_term_is_killed(supervisors: Supervisors) -> None:
    ended, _, _ = await run(
        supervisors, "trap '' TERM; while true; do sleep 0.1; done", timeout=1.5
    )
    assert ended.timed_out
    assert ended.exit_code == -signal.SIGKILL


async def test_a_command_may_clean_up_when_its_time_is_over(supervisors: Supervisors) -> None:
    line = "trap 'echo cleaned; exit 9' TERM; while true; do sleep 0.05; done"
    ended, out, _ = await run(supervisors, line, timeout=1.5, grace_seconds=30.0)
    assert (ended.exit_code, out) == (9, "cleaned\n")
    assert ended.timed_out


async def test_stopping_ends_it_early(supervisors: Supervisors) -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().call_later(0.1, stop.set)
    ended, _, _ = await run(supervisors, "sleep 600", stop=stop)
    assert ended.stopped
    assert ended.error == "stopped with its worker"


async def test_what_a_finished_command_left_in_its_group_is_killed(
    supervisors: Supervisors,
) -> None:
    ended, out, _ = await run(supervisors, "sleep 600 >/dev/null 2>&1 & echo $!")
    assert ended.exit_code == 0
    await asyncio.to_thread(wait_until_gone, int(out))


async def test_a_daemon_that_holds_the_output_is_not_waited_for(supervisors: Supervisors) -> None:
    await run(supervisors, "true")
    files = psutil.Process().num_fds()
    line = "echo before; setsid sh -c 'echo $$; exec sleep 60' & sleep 0.2; exit 3"
    ended, out, _ = await run(supervisors, line, timeout=30)
    [before, daemon] = out.split()
    with contextlib.suppress(ProcessLookupError):
        os.kill(int(daemon), signal.SIGKILL)
    assert (before, ended.exit_code, ended.timed_out) == ("before", 3, False)
    assert ended.seconds < 30
    for _ in range(10):
        await asyncio.sleep(0)  # the loop lets go of them in its turn
    assert psutil.Process().num_fds() == files


async def test_a_command_killed_by_a_signal_says_which(supervisors: Supervisors) -> None:
    ended, _, _ = await run(supervisors, "kill -SEGV $$")
    assert ended.error == "killed by SIGSEGV"


async def test_the_environment_is_clean_but_for_what_the_job_names(
    supervisors: Supervisors, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET_OF_THE_WORKER", "x")
    _, out, _ = await run(supervisors, "env", env={"NAMED": "by the job; $(touch x)"})
    assert "SECRET_OF_THE_WORKER" not in out
    assert "NAMED=by the job; $(touch x)\n" in out
    assert "PATH=" in out


async def test_a_command_reads_nothing_from_the_worker(supervisors: Supervisors) -> None:
    ended, out, _ = await run(supervisors, "cat; echo end")
    assert (ended.exit_code, out) == (0, "end\n")


WORKER = textwrap.dedent("""
    import asyncio, sys, time
    from monarq.jobs.commands import Command, run_command
    from monarq.jobs.supervised import Supervisors

    def take(stream, data):
        sys.stdout.write(data.decode())
        sys.stdout.flush()

    class Lease:
        def tell_end(self, told):
            if told is not None:
                for seconds in map(float, sys.argv[1:]):
                    told(time.monotonic() + seconds)

    line = "sleep 600 & setsid sleep 600 & echo $$ $! $PPID; wait"
    asyncio.run(run_command(Command(line), take, supervisors=Supervisors(), lease=Lease()))
""")


@contextlib.contextmanager
def running_worker(*seconds: float) -> Iterator[tuple[subprocess.Popen[str], list[int]]]:
    """A process that runs a command, and the PIDs of that, of a daemon and of the supervisor. The
    command's lease ends so many seconds after its start."""
    command = [sys.executable, "-c", WORKER, *map(str, seconds)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as worker:
        assert worker.stdout is not None
        try:
            pids = [int(pid) for pid in worker.stdout.readline().split()]
            assert len(pids) == 3
            yield worker, pids
        finally:
            worker.kill()


def test_a_killed_workers_command_is_killed_with_its_children() -> None:
    with running_worker() as (worker, pids):
        worker.kill()
        worker.wait()
        for pid in pids:
            wait_until_gone(pid)


@pytest.mark.slow
def test_a_frozen_workers_command_is_killed_when_its_lease_is_over() -> None:
    with running_worker(3.0) as (worker, [command, daemon, _]):
        worker.send_signal(signal.SIGSTOP)
        for pid in (command, daemon):
            wait_until_gone(pid)


@pytest.mark.slow
def test_a_command_whose_lease_was_renewed_goes_on() -> None:
    with (
        running_worker(3.0, 600.0) as (_, [renewed, *_]),
        running_worker(4.0) as (_, [other, *_]),
    ):
        wait_until_gone(other)
        assert _is_alive(renewed)


async def test_a_supervisor_that_its_job_kills_takes_everything_with_it(
    supervisors: Supervisors,
) -> None:
    line = "setsid sleep 600 & echo $!; kill -KILL $PPID; sleep 600"
    ended, out, _ = await run(supervisors, line)
    assert ended.error == "the process that supervised it was killed"
    if linux.IS_LINUX:
        await asyncio.to_thread(wait_until_gone, int(out))
    ended, out, _ = await run(supervisors, "echo next")
    assert (ended.error, out) == (None, "next\n")


async def test_a_starter_that_was_killed_is_started_again(supervisors: Supervisors) -> None:
    _, out, _ = await run(supervisors, "ps -o ppid= -p $PPID")
    os.kill(int(out), signal.SIGKILL)
    # The supervisors that wait for a command go on; more are needed.
    ends = await asyncio.gather(*(run(supervisors, "sleep 0.2; echo on") for _ in range(3)))
    assert [out for _, out, _ in ends] == ["on\n"] * 3


needs_linux = pytest.mark.skipif(not linux.IS_LINUX, reason="needs subreapers")

ESCAPES = {
    "setsid": "setsid sleep 600 & echo $!",
    "double fork": "sh -c 'setsid sh -c \"sleep 600 & echo \\$!\" & exit' ",
    "cleared environment": "env -i /usr/bin/setsid /bin/sleep 600 & echo $!",
    "nohup in a pipe": "(nohup setsid sleep 600 >/dev/null 2>&1 & echo $!) | cat",
}


@needs_linux
@pytest.mark.parametrize("line", ESCAPES.values(), ids=ESCAPES)
async def test_a_process_that_left_the_group_ends_with_its_command(
    supervisors: Supervisors, line: str
) -> None:
    ended, out, _ = await run(supervisors, f"{line}; sleep 0.3; exit 4")
    assert ended.exit_code == 4
    assert out.strip()
    for pid in out.split():
        await asyncio.to_thread(wait_until_gone, int(pid))


@needs_linux
async def test_only_the_processes_of_the_command_that_ends_are_killed(
    supervisors: Supervisors, tmp_path: Path
) -> None:
    release = tmp_path / "release"
    waiting = f"setsid sleep 600 & echo $!; until test -e {release}; do sleep 0.02; done"
    long = asyncio.create_task(run(supervisors, f"{waiting}; kill -0 $! && echo there"))
    for _ in range(5):
        _, out, _ = await run(supervisors, "setsid sleep 600 & echo $!")
        await asyncio.to_thread(wait_until_gone, int(out))
    release.touch()
    _, out, _ = await long
    daemon, there = out.split()
    assert there == "there"
    await asyncio.to_thread(wait_until_gone, int(daemon))


@pytest.mark.slow
@needs_linux
async def test_what_forks_while_it_is_killed_is_killed(supervisors: Supervisors) -> None:
    mark = f"mark-{uuid.uuid4()}"

    def left() -> int:
        lines = [process.info["cmdline"] or [] for process in psutil.process_iter(["cmdline"])]
        return sum(mark in " ".join(line) for line in lines)

    forking = f': {mark}; sleep 0.001; setsid sh -c "$1" x "$1"'
    line = f'f() {{ setsid sh -c "$1" x "$1" & }}; f \'{forking}\'; sleep 600'
    running = asyncio.create_task(run(supervisors, line, timeout=3))
    await asyncio.to_thread(wait_for, lambda: left() >= 10)
    ended, _, _ = await running
    assert ended.timed_out
    assert not left()


@needs_linux
async def test_a_command_does_not_inherit_that_signals_are_ignored(
    supervisors: Supervisors,
) -> None:
    await run(supervisors, "true")
    _, out, _ = await run(supervisors, "grep SigIgn /proc/self/status")
    ignored = int(out.split()[1], 16)
    # glibc's `posix_spawn` ignores two of its own, 32 and 33.
    assert not ignored & 0x7FFF_FFFF
