import asyncio
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from monarq.jobs.commands import Command, Ended, Stream, run_command
from monarq.jobs.guard import Guard


@pytest.fixture
def guard() -> Iterator[Guard]:
    guard = Guard()
    yield guard
    guard.close()


async def run(guard: Guard, line: str, **options: object) -> tuple[Ended, str, str]:
    said = {Stream.STDOUT: b"", Stream.STDERR: b""}

    def take(stream: Stream, data: bytes) -> None:
        said[stream] += data

    stop = options.pop("stop", None)
    grace_seconds = options.pop("grace_seconds", 0.5)
    ended = await run_command(
        Command(line, **options),  # type: ignore[arg-type]
        take,
        guard=guard,
        stop=stop,  # type: ignore[arg-type]
        grace_seconds=grace_seconds,  # type: ignore[arg-type]
    )
    return ended, said[Stream.STDOUT].decode(), said[Stream.STDERR].decode()


def wait_until_gone(pid: int) -> None:
    deadline = time.monotonic() + 10
    while _is_alive(pid):
        assert time.monotonic() < deadline, f"process {pid} is still there"
        time.sleep(0.01)


def _is_alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


async def test_exit_code_and_both_outputs_are_told(guard: Guard) -> None:
    ended, out, err = await run(guard, "echo good; echo bad >&2; exit 3")
    assert (ended.exit_code, out, err) == (3, "good\n", "bad\n")
    assert ended.error == "exit code 3"


async def test_success_has_no_error(guard: Guard) -> None:
    ended, _, _ = await run(guard, "true")
    assert (ended.exit_code, ended.error) == (0, None)


async def test_output_comes_while_the_command_runs(guard: Guard, tmp_path: Path) -> None:
    fifo = tmp_path / "go-on"
    os.mkfifo(fifo)
    first = asyncio.Event()
    running = asyncio.ensure_future(
        run_command(
            Command(f"echo first; read line < {fifo}; echo $line"),
            lambda stream, data: first.set(),
            guard=guard,
        )
    )
    await asyncio.wait_for(first.wait(), 10)
    assert not running.done()
    await asyncio.to_thread(fifo.write_text, "second\n")
    assert (await running).exit_code == 0


async def test_a_command_that_is_not_there_fails_with_a_clear_error(guard: Guard) -> None:
    ended, _, err = await run(guard, "no-such-command-here")
    assert ended.exit_code == 127
    assert ended.error == "exit code 127: command not found"
    assert "no-such-command-here" in err


async def test_a_file_that_is_no_program_fails_with_a_clear_error(
    guard: Guard, tmp_path: Path
) -> None:
    (tmp_path / "data").write_text("x")
    ended, _, _ = await run(guard, "./data", cwd=str(tmp_path))
    assert ended.error == "exit code 126: command cannot be executed"


async def test_a_missing_working_directory_fails_with_a_clear_error(guard: Guard) -> None:
    ended, _, _ = await run(guard, "true", cwd="/no/such/directory")
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
    guard: Guard, cwd: str, said: str
) -> None:
    ended, _, _ = await run(guard, "true", cwd=cwd)
    assert ended.exit_code is None
    assert said in (ended.error or "")


async def test_a_line_with_a_nul_fails_with_a_clear_error(guard: Guard) -> None:
    ended, _, _ = await run(guard, "echo a\0b")
    assert ended.exit_code is None
    assert (ended.error or "").startswith("cannot start:")


async def test_a_time_out_ends_the_command_and_its_children(guard: Guard) -> None:
    ended, out, _ = await run(guard, "sleep 600 & echo $!; sleep 600", timeout=1.5)
    assert ended.timed_out
    assert ended.error == "timed out after 1.5 s"
    await asyncio.to_thread(wait_until_gone, int(out))


async def test_a_command_that_ignores_term_is_killed(guard: Guard) -> None:
    ended, _, _ = await run(guard, "trap '' TERM; while true; do sleep 0.1; done", timeout=1.5)
    assert ended.timed_out
    assert ended.exit_code == -signal.SIGKILL


async def test_a_command_may_clean_up_when_its_time_is_over(guard: Guard) -> None:
    line = "trap 'echo cleaned; exit 9' TERM; while true; do sleep 0.05; done"
    ended, out, _ = await run(guard, line, timeout=1.5, grace_seconds=30.0)
    assert (ended.exit_code, out) == (9, "cleaned\n")
    assert ended.timed_out


async def test_stopping_ends_it_early(guard: Guard) -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().call_later(0.1, stop.set)
    ended, _, _ = await run(guard, "sleep 600", stop=stop)
    assert ended.stopped
    assert ended.error == "stopped with its worker"


async def test_what_a_finished_command_left_in_its_group_is_killed(guard: Guard) -> None:
    ended, out, _ = await run(guard, "sleep 600 >/dev/null 2>&1 & echo $!")
    assert ended.exit_code == 0
    await asyncio.to_thread(wait_until_gone, int(out))


async def test_a_daemon_that_holds_the_output_is_not_waited_for(guard: Guard) -> None:
    files = psutil.Process().num_fds()
    line = "echo before; setsid sh -c 'echo $$; exec sleep 60' & sleep 0.2; exit 3"
    ended, out, _ = await run(guard, line, timeout=30)
    [before, daemon] = out.split()
    os.kill(int(daemon), signal.SIGKILL)
    assert (before, ended.exit_code, ended.timed_out) == ("before", 3, False)
    assert ended.seconds < 30
    for _ in range(10):
        await asyncio.sleep(0)  # the loop lets go of them in its turn
    assert psutil.Process().num_fds() == files


async def test_a_command_killed_by_a_signal_says_which(guard: Guard) -> None:
    ended, _, _ = await run(guard, "kill -SEGV $$")
    assert ended.error == "killed by SIGSEGV"


async def test_the_environment_is_clean_but_for_what_the_job_names(
    guard: Guard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET_OF_THE_WORKER", "x")
    _, out, _ = await run(guard, "env", env={"NAMED": "by the job; $(touch x)"})
    assert "SECRET_OF_THE_WORKER" not in out
    assert "NAMED=by the job; $(touch x)\n" in out
    assert "PATH=" in out


async def test_a_command_reads_nothing_from_the_worker(guard: Guard) -> None:
    ended, out, _ = await run(guard, "cat; echo end")
    assert (ended.exit_code, out) == (0, "end\n")


WORKER = textwrap.dedent("""
    import asyncio, sys
    from monarq.jobs.commands import Command, run_command
    from monarq.jobs.guard import Guard

    def take(stream, data):
        sys.stdout.write(data.decode())
        sys.stdout.flush()

    class Watch(Guard):
        def watch(self, group):
            super().watch(group, *map(float, sys.argv[1:]))

    line = "sleep 600 & echo $$ $!; wait"
    asyncio.run(run_command(Command(line), take, guard=Watch()))
""")


def test_a_killed_workers_command_is_killed_with_its_children() -> None:
    worker = subprocess.Popen([sys.executable, "-c", WORKER], stdout=subprocess.PIPE, text=True)
    assert worker.stdout is not None
    pids = [int(pid) for pid in worker.stdout.readline().split()]
    worker.kill()
    worker.wait()
    worker.stdout.close()
    for pid in pids:
        wait_until_gone(pid)


def test_a_frozen_workers_command_is_killed_when_its_lease_is_over() -> None:
    until = f"{time.monotonic() + 1}"
    worker = subprocess.Popen(
        [sys.executable, "-c", WORKER, until], stdout=subprocess.PIPE, text=True
    )
    assert worker.stdout is not None
    pids = [int(pid) for pid in worker.stdout.readline().split()]
    worker.send_signal(signal.SIGSTOP)
    for pid in pids:
        wait_until_gone(pid)
    worker.kill()
    worker.wait()
    worker.stdout.close()


def test_a_command_whose_lease_was_renewed_goes_on(guard: Guard) -> None:
    sleeping = [subprocess.Popen(["sleep", "600"], start_new_session=True) for _ in range(2)]
    renewed, other = sleeping
    guard.watch(renewed.pid, time.monotonic() + 0.2)
    guard.watch(renewed.pid, time.monotonic() + 600)
    guard.watch(other.pid, time.monotonic() + 0.4)
    assert other.wait(30) == -signal.SIGKILL
    assert renewed.poll() is None
    guard.close()
    assert renewed.wait(30) == -signal.SIGKILL
