"""How the command line behaves at a terminal, in a pipe, and when it is interrupted."""

import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pytest

from tests.cli.conftest import Run
from tests.cli.invoking import Invoke
from tests.server.serving import ServerProcess

SECONDS = 60.0
#: As the shell calls the installed command.
COMPLETE = "import sys; sys.argv = ['monarq']; from monarq.cli.main import main; main()"


class Terminal:
    """A command at a terminal of its own, so many columns wide."""

    def __init__(self, environment: Mapping[str, str], columns: int, *arguments: str) -> None:
        self.fd, inner = pty.openpty()
        fcntl.ioctl(inner, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
        self.process = subprocess.Popen(
            [sys.executable, "-m", "monarq", *arguments],
            env=dict(environment),
            stdin=inner,
            stdout=inner,
            stderr=inner,
            start_new_session=True,
        )
        os.close(inner)
        self.said = ""

    def wait_for(self, text: str) -> None:
        self._read(lambda: text in self.said)
        assert text in self.said, self.said

    def end(self) -> int:
        self._read(lambda: False)
        os.close(self.fd)
        return self.process.wait(SECONDS)

    def _read(self, is_enough: Callable[[], bool]) -> None:
        deadline = time.monotonic() + SECONDS
        while not is_enough() and time.monotonic() < deadline:
            if select.select([self.fd], [], [], 0.1)[0]:
                try:
                    data = os.read(self.fd, 65536)
                except OSError:  # the other side is closed
                    return
                if not data:
                    return
                self.said += data.decode(errors="replace")


@contextmanager
def running(
    environment: Mapping[str, str], *arguments: str
) -> Iterator[tuple[subprocess.Popen[str], IO[str], IO[str]]]:
    """A command in pipes: its process, its stdout and its stderr."""
    with subprocess.Popen(
        [sys.executable, "-m", "monarq", *arguments],
        env=dict(environment),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        yield process, process.stdout, process.stderr


@pytest.fixture
def at_terminal(environment: dict[str, str]) -> dict[str, str]:
    kept = {name: text for name, text in environment.items() if name not in ("COLUMNS", "NO_COLOR")}
    return kept | {"TERM": "xterm-256color"}


def test_colours_are_for_terminals_and_for_those_who_want_them(
    cli: Invoke, monarq: Run, at_terminal: dict[str, str]
) -> None:
    cli.ok("enqueue", "true", "--id", "a")
    cli.ok("cancel", "a")
    terminal = Terminal(at_terminal, 100, "list")
    assert terminal.end() == 0
    assert "\x1b[2mcancelled\x1b[0m" in terminal.said
    plain = Terminal(at_terminal | {"NO_COLOR": "1"}, 100, "list")
    assert plain.end() == 0
    assert "cancelled" in plain.said
    assert "\x1b" not in plain.said
    assert "\x1b" not in monarq("list", NO_COLOR="").stdout


def test_a_table_fits_a_narrow_terminal_and_is_whole_in_a_pipe(
    cli: Invoke, environment: dict[str, str], at_terminal: dict[str, str]
) -> None:
    cli.ok("enqueue", "echo " + "x" * 300, "--id", "a")
    terminal = Terminal(at_terminal | {"NO_COLOR": "1"}, 60, "list")
    assert terminal.end() == 0
    assert max(len(line) for line in terminal.said.splitlines()) <= 60
    assert "…" in terminal.said
    kept = {name: text for name, text in environment.items() if name != "COLUMNS"}
    piped = subprocess.run(
        [sys.executable, "-m", "monarq", "list"],
        env=kept,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "x" * 300 in piped.stdout


def test_a_terminal_too_narrow_for_a_table_gets_a_block_for_each_row(
    cli: Invoke, at_terminal: dict[str, str]
) -> None:
    for name in ("a", "b"):
        cli.ok("enqueue", "echo " + "x" * 300, "--id", f"the-job-with-the-name-{name}")
    terminal = Terminal(at_terminal | {"NO_COLOR": "1"}, 40, "list")
    assert terminal.end() == 0
    lines = terminal.said.splitlines()
    assert max(map(len, lines)) <= 40
    assert [line.split()[1] for line in lines if line.startswith("id ")] == [
        "the-job-with-the-name-a",
        "the-job-with-the-name-b",
    ]
    assert [line.split()[1] for line in lines if line.startswith("state ")] == ["pending"] * 2


def test_a_payload_cannot_steer_the_terminal(cli: Invoke) -> None:
    cli.ok("enqueue", "printf '\x1b[2J' ; true", "--id", "a")
    cli.ok("push", "q", '"\\u001b[2J"')
    for answer in (cli.ok("list"), cli.ok("tail", "q")):
        assert "\x1b" not in answer.out


def test_top_draws_until_it_is_interrupted(cli: Invoke, at_terminal: dict[str, str]) -> None:
    cli.ok("push", "orders", "1")
    terminal = Terminal(at_terminal, 100, "top", "--interval", "0.1")
    terminal.wait_for("orders")
    terminal.process.send_signal(signal.SIGINT)
    assert terminal.end() == 130
    assert "Traceback" not in terminal.said


def test_top_leaves_columns_out_rather_than_cut_their_headings(
    cli: Invoke, at_terminal: dict[str, str]
) -> None:
    cli.ok("push", "a-queue-with-quite-a-long-name", "1")
    terminal = Terminal(at_terminal | {"NO_COLOR": "1"}, 50, "top", "--interval", "0.1")
    terminal.wait_for("a-queue")
    terminal.process.send_signal(signal.SIGINT)
    assert terminal.end() == 130
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", terminal.said)
    headings = set(re.findall(r"^ *queue +[^\n]+", plain, re.MULTILINE))
    assert headings, plain
    for heading in headings:
        assert {"queue", "pending", "done/s"} <= set(heading.split())
        assert set(heading.split()) <= {"queue", "pending", "push/s", "done/s", "dead", "lag", "s"}


def test_nothing_is_removed_when_the_question_is_answered_with_no(
    cli: Invoke, at_terminal: dict[str, str]
) -> None:
    cli.ok("push", "orders", "1")
    terminal = Terminal(at_terminal, 100, "queue", "delete", "orders")
    terminal.wait_for("[y/N]")
    os.write(terminal.fd, b"n\n")
    assert terminal.end() == 1
    assert cli.json("queue", "show", "orders")["stored"] == 1


def test_tail_follows_what_comes_and_ends_with_ctrl_c(
    cli: Invoke, environment: dict[str, str], server: ServerProcess
) -> None:
    for place in ((), ("--url", server.url)):
        cli.ok("push", "orders", '"old"', *place)
        with running(environment, "tail", "orders", "-f", *place) as (process, out, err):
            assert out.readline().endswith('"old"\n')
            cli.ok("push", "orders", '"new"', *place)
            assert out.readline().endswith('"new"\n')
            # A partition that was not there when it began.
            cli.ok("push", "orders", '"lane"', "-p", "another", *place)
            assert out.readline().endswith('another #1  "lane"\n')
            process.send_signal(signal.SIGINT)
            assert process.wait(SECONDS) == 130
            assert err.read() == ""


def test_tail_ends_when_nobody_reads_what_it_prints(
    cli: Invoke, environment: dict[str, str]
) -> None:
    cli.ok("push", "orders", '"only"')
    with running(environment, "tail", "orders", "-f") as (process, out, err):
        assert out.readline().endswith('"only"\n')
        out.close()
        # No other message comes that it could fail to print.
        assert process.wait(SECONDS) == 0
        assert err.read() == ""


def test_a_pop_that_is_interrupted_takes_nothing(cli: Invoke, environment: dict[str, str]) -> None:
    cli.ok("queue", "create", "orders")
    command = ("pop", "orders", "--wait", "10m", "--group", "g")
    with running(environment, *command) as (process, out, _):
        deadline = time.monotonic() + SECONDS
        while not cli.json("groups", "list") and time.monotonic() < deadline:
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        assert process.wait(SECONDS) == 130
        assert out.read() == ""
    cli.ok("push", "orders", "1")
    assert len(cli.json("pop", "orders", "--group", "g")["messages"]) == 1


def test_whoever_has_read_enough_causes_no_error(cli: Invoke, environment: dict[str, str]) -> None:
    cli.ok("push", "numbers", stdin="\n".join(str(number) * 200 for number in range(2000)))
    for command in ("export numbers", "tail numbers -n 1000", "pop numbers -n 1000"):
        done = subprocess.run(
            f"{sys.executable} -m monarq {command} | head -1",
            shell=True,
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        assert len(done.stdout.splitlines()) == 1
        assert not re.search("Traceback|BrokenPipe|Exception ignored", done.stderr), done.stderr


@pytest.mark.parametrize("closed", ["<&-", ">&-", "<&- >&-", "<&- >&- 2>&-"])
def test_streams_that_are_closed_cause_no_error(
    cli: Invoke, environment: dict[str, str], closed: str
) -> None:
    cli.ok("push", "numbers", "1")
    commands = ("queue list", "queue list --json", "version", "pop numbers", "push numbers 2")
    for command in commands:
        done = subprocess.run(
            f"{sys.executable} -m monarq {command} {closed}",
            shell=True,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode, "Traceback" in done.stderr) == (0, False), done.stderr
    assert cli.json("queue", "show", "numbers")["pushed"] == 2


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full here")
def test_an_answer_that_finds_no_room_is_one_clear_line(
    cli: Invoke, environment: dict[str, str]
) -> None:
    cli.ok("push", "numbers", "1")
    for command in (["export"], ["queue", "list"]):
        with Path("/dev/full").open("w") as full:
            done = subprocess.run(
                [sys.executable, "-m", "monarq", *command],
                env=environment,
                stdout=full,
                stderr=subprocess.PIPE,
                text=True,
                check=False,
            )
        assert done.returncode == 1
        assert done.stderr == "monarq: the answer could not be written: No space left on device\n"


def test_an_answer_that_a_locale_cannot_write_is_one_clear_line(
    cli: Invoke, environment: dict[str, str]
) -> None:
    cli.ok("push", "größe", "1")
    done = subprocess.run(
        [sys.executable, "-m", "monarq", "queue", "list"],
        env=environment | {"PYTHONIOENCODING": "ascii"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr == (
        "monarq: the answer cannot be written as ascii: use a locale with UTF-8\n"
    )


def test_an_option_of_commands_in_front_of_them_is_told_where_it_belongs(monarq: Run) -> None:
    for option in (["--url", "http://127.0.0.1:1"], ["--store=memory:"], ["--json"]):
        done = monarq(*option, "list")
        assert (done.returncode, done.stdout) == (2, "")
        assert "belongs behind the command" in done.stderr


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_there_is_a_completion_for_each_shell(monarq: Run, shell: str) -> None:
    script = monarq("--show-completion", shell, _TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION="1")
    assert script.returncode == 0, script.stderr
    assert f"complete_{shell}" in script.stdout


def test_completion_knows_commands_and_options(environment: dict[str, str]) -> None:
    def words(line: str) -> list[str]:
        done = subprocess.run(
            [sys.executable, "-c", COMPLETE],
            env=environment
            | {
                "_MONARQ_COMPLETE": "complete_bash",
                "COMP_WORDS": line,
                "COMP_CWORD": str(len(line.split(" ")) - 1),
            },
            capture_output=True,
            text=True,
            check=False,
        )
        return done.stdout.split()

    assert "queue" in words("monarq qu")
    assert set(words("monarq queue p")) == {"pause"}
    assert "--run-at" in words("monarq push --r")


def test_a_command_imports_no_more_than_it_needs(monarq: Run) -> None:
    monarq("enqueue", "true")
    done = monarq("list", PYTHONPROFILEIMPORTTIME="1")
    assert done.returncode == 0
    loaded = set(re.findall(r"\| +([\w.]+)$", done.stderr, re.MULTILINE))
    unwanted = {"httpx", "asyncpg", "uvloop", "rich.console", "monarq.broker.broker", "psutil"}
    assert unwanted & loaded == set()
    version = monarq("--version", PYTHONPROFILEIMPORTTIME="1").stderr
    assert "typer" not in version
    assert "msgspec" not in version


#: Sets the clipboard, clears the screen, sets the title, and the same as single characters.
HOSTILE = "\x1b]52;c;ZXZpbA==\x07\x1b[2J\x1b]0;evil\x07\x9b2J\x7f\u202e\r\b"


@pytest.fixture
def hostile(cli: Invoke, monarq: Run, tmp_path: Path) -> str:
    """A job whose command, output and error hold control characters, and a message of them. Names
    cannot hold any."""
    (tmp_path / "out").write_bytes(HOSTILE.encode())
    printing = f"cat {tmp_path}/out; cat {tmp_path}/out >&2; exit 3 # {HOSTILE}"
    cli.ok("enqueue", printing, "--id", "job", "--queue", "queue", "--max-retries", "0")
    assert monarq("worker", "start", "--burst", "--queue", "queue").returncode == 0
    cli.ok("push", "log", json.dumps(HOSTILE, ensure_ascii=False))
    return HOSTILE


@pytest.mark.slow
def test_control_characters_of_others_do_nothing_to_a_terminal(
    hostile: str, at_terminal: dict[str, str]
) -> None:
    controls = {each for each in hostile if not each.isprintable()}
    for arguments in (
        ("list",),
        ("show", "job"),
        ("show", "job", "--json"),
        ("show", f"not{hostile}"),
        ("logs", "job"),
        ("logs", "job", "--follow"),
        ("dlq", "list"),
        ("dlq", "show", "job"),
        ("tail", "log"),
        ("tail", "log", "--json"),
        ("pop", "log"),
        ("retry", "job"),
        ("worker", "start", "--burst", "--queue", "queue"),
    ):
        terminal = Terminal(at_terminal | {"NO_COLOR": "1"}, 200, *arguments)
        terminal.end()
        # The terminal itself ends lines so.
        said = terminal.said.replace("\r\n", "")
        assert said, arguments
        assert not controls & set(said), (arguments, said)


def test_raw_and_pipes_have_control_characters_as_they_are(
    cli: Invoke, hostile: str, at_terminal: dict[str, str]
) -> None:
    for arguments in (("show", "job"), ("logs", "job"), ("dlq", "show", "job")):
        terminal = Terminal(at_terminal | {"NO_COLOR": "1"}, 200, *arguments, "--raw")
        assert terminal.end() == 0
        assert "\x1b[2J" in terminal.said
        assert "\x1b[2J" in cli.ok(*arguments).out
    terminal = Terminal(at_terminal | {"NO_COLOR": "1"}, 200, "logs", "job", "--follow", "--raw")
    assert terminal.end() == 0
    assert terminal.said
