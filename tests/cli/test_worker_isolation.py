"""What a job can see of its worker, and as whom and within which limits it runs."""

import ctypes
import os
import pwd
import subprocess
import sys
from pathlib import Path

import pytest

from monarq.errors import InvalidRequestError
from monarq.jobs import linux
from monarq.jobs.confinement import find_user
from tests.cli.conftest import Run
from tests.cli.invoking import Invoke

needs_linux = pytest.mark.skipif(not linux.IS_LINUX, reason="needs /proc")

SECRETS = {
    "MONARQ_TOKEN": "token-of-the-worker",
    "MONARQ_JWT_SECRET": "jwt-secret-of-the-worker-0123456789",
    "DATABASE_PASSWORD": "password-of-the-app",
}

#: Says of each ancestor what it was given, and whether its memory can be looked at.
SPY = """
p=$$
for n in 1 2 3 4; do
    p=$(sed 's/.*) . \\([0-9]*\\) .*/\\1/' /proc/$p/stat)
    echo "ancestor $n: $(tr '\\0' ' ' < /proc/$p/cmdline)"
    tr '\\0' '\\n' < /proc/$p/environ
    cat /proc/$p/maps > /dev/null && echo "open memory of $n"
done
ls -l /proc/$PPID/fd
true
"""


def without_capabilities() -> None:
    """Root is then refused what any other user is refused. Runs before the program."""
    library = ctypes.CDLL(None)
    for capability in range(64):
        library.prctl(24, capability, 0, 0, 0)


@needs_linux
@pytest.mark.parametrize("detach", [False, True], ids=["foreground", "detached"])
@pytest.mark.parametrize("privileged", [False, True][: 2 if os.geteuid() == 0 else 1])
def test_a_job_sees_no_secret_of_its_worker_or_of_what_started_it(
    cli: Invoke, environment: dict[str, str], tmp_path: Path, privileged: bool, detach: bool
) -> None:
    address = f"sqlite:///{tmp_path / 'secret-path.db'}"
    cli.ok("enqueue", SPY, "--id", "spy", "--store", address)
    arguments = ["worker", "start", "--burst", "--token", "typed-token", f"--store={address}"]
    subprocess.run(
        [sys.executable, "-m", "monarq", *arguments, *(["--detach"] if detach else [])],
        env=environment | SECRETS,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=60,
        check=True,
        preexec_fn=None if privileged else without_capabilities,
    )
    job = cli.json("show", "spy", "--store", address)
    while job["state"] != "completed":
        job = cli.json("show", "spy", "--store", address)
    [attempt] = job["history"]
    seen = attempt["stdout"] + attempt["stderr"]
    ancestors = [line for line in seen.splitlines() if line.startswith("ancestor")]
    assert "supervisor.py" in ancestors[0]
    assert "supervisor.py" in ancestors[1]
    assert "worker run --id" in ancestors[2]
    assert detach or "worker start" in ancestors[3]
    for secret in (*SECRETS.values(), "typed-token", "secret-path"):
        assert secret not in seen
    if privileged:
        assert "PATH=" in seen, "so it looked at the right place"
    else:
        ours = 3 if detach else 4
        assert [f"open memory of {n}" in seen for n in range(1, ours + 1)] == [False] * ours
        assert "Permission denied" in seen


def test_the_worker_and_its_tasks_have_the_whole_environment(
    environment: dict[str, str], tmp_path: Path
) -> None:
    address = f"sqlite:///{tmp_path / 'app.db'}"
    (tmp_path / "telling.py").write_text(
        "import os\nfrom monarq import Client\n"
        f"mq = Client({address!r})\n"
        "@mq.task()\ndef tell(name):\n    return ascii(os.environ.get(name))\n"
        "if __name__ == '__main__':\n"
        "    import sys\n"
        "    if sys.argv[1] == 'enqueue':\n        print(tell.enqueue('GIVEN').id)\n"
        "    else:\n        print(mq.job(sys.argv[1]).result(30))\n"
    )

    def run(*arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, *arguments],
            cwd=tmp_path,
            env=environment | {"GIVEN": "an ä\n=\udce4 of the app"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        return done.stdout.strip()

    job = run("telling.py", "enqueue")
    run("-m", "monarq", "worker", "start", "--app", "telling:mq", "--burst")
    assert run("telling.py", job) == "'an \\xe4\\n=\\udce4 of the app'"


def test_commands_run_as_another_user(cli: Invoke, monarq: Run) -> None:
    user = pwd.getpwnam("nobody")
    cli.ok(
        "enqueue", "id -u; id -g; id -G; echo $HOME $USER $LOGNAME; kill -0 $PPID", "--id", "who"
    )
    done = monarq("worker", "start", "--burst", "--run-as", "nobody")
    if os.geteuid() != 0:
        assert "only a worker that runs as root" in done.stderr
        return
    assert done.returncode == 0, done.stderr
    [attempt] = cli.json("show", "who")["history"]
    groups = " ".join(map(str, dict.fromkeys(os.getgrouplist("nobody", user.pw_gid))))
    assert attempt["stdout"].splitlines() == [
        str(user.pw_uid),
        str(user.pw_gid),
        groups,
        f"{user.pw_dir} nobody nobody",
    ]
    assert "not permitted" in attempt["stderr"], "its supervisor is not its user's"


def test_an_unknown_user_is_refused(cli: Invoke) -> None:
    said = cli.refused("worker", "start", "--run-as", "no-such-user-here")
    assert "there is no user 'no-such-user-here'" in said


def test_only_root_can_run_commands_as_another_user() -> None:
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            if os.geteuid() == 0:
                os.setuid(65534)
            find_user("root")
        except InvalidRequestError as error:
            code = 0 if "only a worker that runs as root" in str(error) else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


@pytest.mark.parametrize("size", ["lots", "0", "-1", "12 parsecs", "9" * 25, "1e9"])
def test_a_size_that_is_none_is_refused(cli: Invoke, size: str) -> None:
    assert "--max-memory must be" in cli.refused("worker", "start", f"--max-memory={size}")


@needs_linux
def test_what_runs_into_a_limit_says_which(cli: Invoke, monarq: Run) -> None:
    hog = f"{sys.executable} -c 'b = bytearray(1 << 30)'"
    forks = "for n in 1 2 3 4 5 6 7 8 9; do sleep 5 & done; wait"
    for name, line in (("memory", hog), ("cpu", "while :; do :; done"), ("forks", forks)):
        cli.ok("enqueue", line, "--id", name, "--max-retries", "0", "--timeout", "30")
    cli.ok("enqueue", "true", "--id", "fine")
    limits = ["--max-memory", "512MiB", "--max-cpu-seconds", "1"]
    if os.geteuid() == 0:
        # A user of whom there are no other processes; root is not bound.
        limits += ["--max-processes", "4", "--run-as", "games"]
    done = monarq("worker", "start", "--burst", "--concurrency", "1", *limits)
    assert done.returncode == 0, done.stderr

    def error(job: str) -> str:
        return str(cli.json("show", job)["error"])

    assert cli.json("show", "fine")["state"] == "completed"
    assert "more CPU time than --max-cpu-seconds 1" in error("cpu")
    if os.geteuid() == 0:
        assert "more processes than --max-processes 4" in error("forks")
        assert cli.json("show", "memory")["state"] == "dead"
    else:
        assert f"more memory than --max-memory {512 << 20}" in error("memory")


@needs_linux
def test_memory_is_limited(cli: Invoke, monarq: Run) -> None:
    hog = f"{sys.executable} -c 'b = bytearray(1 << 30)'"
    cli.ok("enqueue", hog, "--id", "memory", "--max-retries", "0")
    assert monarq("worker", "start", "--burst", "--max-memory", "512MiB").returncode == 0
    error = str(cli.json("show", "memory")["error"])
    assert f"more memory than --max-memory {512 << 20}" in error
