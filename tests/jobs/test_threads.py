"""Threads of which some never come back."""

import subprocess
import sys
import textwrap
import threading
from concurrent.futures import Future

import pytest

from monarq.jobs.threads import Threads

SECONDS = 30


def test_a_call_does_not_wait_for_those_that_never_return() -> None:
    threads = Threads("test")
    may_return = threading.Event()
    hanging = [threads.submit(may_return.wait) for _ in range(3)]
    assert threads.submit(lambda: 1).result(SECONDS) == 1
    assert threads.busy == 3
    may_return.set()
    assert [future.result(SECONDS) for future in hanging] == [True] * 3
    assert threads.busy == 0
    threads.shutdown()


def test_a_thread_is_used_again() -> None:
    threads = Threads("test")
    used = {threads.submit(threading.get_ident).result(SECONDS) for _ in range(50)}
    assert len(used) == 1
    threads.shutdown()


@pytest.mark.parametrize("error", [ValueError("no"), SystemExit(3), GeneratorExit()])
def test_what_a_call_raises_is_for_whoever_waits_for_it(error: BaseException) -> None:
    def fail() -> None:
        raise error

    threads = Threads("test")
    with pytest.raises(type(error)):
        threads.submit(fail).result(SECONDS)
    assert threads.submit(lambda: 1).result(SECONDS) == 1
    threads.shutdown()


def test_threads_that_cannot_be_had_are_an_error_and_no_call_that_waits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def start(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    threads = Threads("test")
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", start)
        with pytest.raises(RuntimeError, match="can't start"):
            threads.submit(lambda: 1)
    assert threads.busy == 0
    assert threads.submit(lambda: 1).result(SECONDS) == 1
    threads.shutdown()


def test_after_a_shutdown_threads_end_when_they_return() -> None:
    threads = Threads("test")
    may_return = threading.Event()

    def hang() -> threading.Thread:
        may_return.wait()
        return threading.current_thread()

    hanging: Future[threading.Thread] = threads.submit(hang)
    threads.shutdown()
    threads.shutdown()
    with pytest.raises(RuntimeError, match="shut down"):
        threads.submit(lambda: 1)
    may_return.set()
    thread = hanging.result(SECONDS)
    thread.join(SECONDS)
    assert not thread.is_alive()


def test_a_call_that_never_returns_does_not_keep_its_process_alive() -> None:
    program = textwrap.dedent("""
        import time
        from monarq.jobs.threads import Threads

        Threads("test").submit(time.sleep, 600)
        print("end")
    """)
    done = subprocess.run(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, timeout=SECONDS, check=True
    )
    assert done.stdout == b"end\n"
