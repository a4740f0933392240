"""`monarq serve` as a stranger meets it: started with nothing, it says what to try."""

import os
import re
import shlex
import signal
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent


class Started:
    """A server in a process; `said` is what it printed until it was ready."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.said: list[str] = []
        self._ready = threading.Event()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def wait_until_ready(self) -> None:
        assert self._ready.wait(60), f"it only said: {self.said}"

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.said.append(line.rstrip("\n"))
            if "Ctrl+C" in line or '"listening"' in line:
                self._ready.set()


@contextmanager
def serving(environment: dict[str, str], *arguments: str) -> Iterator[Started]:
    with subprocess.Popen(
        [sys.executable, "-m", "monarq", "serve", *arguments],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        started = Started(process)
        try:
            started.wait_until_ready()
            yield started
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()


def pasted(line: str) -> tuple[int, str]:
    """Do what a `curl` line says, as curl would, without needing curl."""
    words = shlex.split(line)
    headers, data, url = {}, None, ""
    rest = iter(words[1:])
    for word in rest:
        if word == "-H":
            name, _, value = next(rest).partition(": ")
            headers[name] = value
        elif word == "-d":
            data = next(rest).encode()
        else:
            assert not word.startswith("-"), word
            url = word
    request = urllib.request.Request(url, data, headers)
    with urllib.request.urlopen(request, timeout=10) as answer:
        return answer.status, answer.read().decode()


def test_the_printed_lines_take_a_message_through(environment: dict[str, str], home: Path) -> None:
    with serving(environment, "--port", "0", "--log-format", "text") as server:
        data = home / "data" / "monarq"
        assert any(str(data) in line for line in server.said)
        assert (data / "monarq.db").is_file()
        assert data.stat().st_mode & 0o777 == 0o700
        lines = [line.strip() for line in server.said if line.strip().startswith("curl ")]
        answers = [pasted(line) for line in lines]
    assert [status // 100 for status, _ in answers] == [2] * len(answers)
    assert '"hi"' in answers[-1][1]
    assert server.process.returncode == 0


def test_it_listens_on_loopback_and_port_6632_unless_told_otherwise(
    environment: dict[str, str],
) -> None:
    shown = subprocess.run(
        [sys.executable, "-m", "monarq", "config", "show"],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert re.search(r"^host +127\.0\.0\.1 ", shown, re.MULTILINE)
    assert re.search(r"^port +6632 ", shown, re.MULTILINE)
    assert re.search(r"^auth +off ", shown, re.MULTILINE)


def test_settings_of_all_sources_reach_the_server(
    environment: dict[str, str], tmp_path: Path
) -> None:
    file = tmp_path / "settings.toml"
    file.write_text("max_body_bytes = 100\nport = 1\n")
    variables = {"MONARQ_DATA_DIR": str(tmp_path / "elsewhere"), "MONARQ_PROT": "1"}
    arguments = ("--config", str(file), "--port", "0", "--log-format", "text")
    with serving(environment | variables, *arguments) as server:
        [line] = [line for line in server.said if "listens on" in line]
        url = line.split()[-1]
        assert not url.endswith(":1")
        assert (tmp_path / "elsewhere" / "monarq.db").is_file()
        assert any("MONARQ_PROT is ignored" in line for line in server.said)
        request = urllib.request.Request(
            f"{url}/api/v1/push", b"x" * 101, {"Content-Type": "application/json"}
        )
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(request, timeout=10)
        assert refused.value.code == 413
        refused.value.close()


def test_a_data_directory_that_cannot_be_written_is_one_clear_line(
    environment: dict[str, str], tmp_path: Path
) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    done = subprocess.run(
        [sys.executable, "-m", "monarq", "serve", "--port", "0", "--data-dir", f"{blocked}/data"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    assert "data_dir: cannot make" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_script_runs_what_this_package_installs() -> None:
    script = (ROOT / "dev").read_text()
    assert 'exec "$venv/bin/python" -m monarq serve "$@"' in script
    assert '--require-hashes --requirement "requirements/$1.txt"' in script
    locked = (ROOT / "requirements" / "serve.txt").read_text()
    assert {"asyncpg", "pyarrow"} <= set(re.findall(r"^([\w-]+)==", locked, re.MULTILINE))
    assert os.access(ROOT / "dev", os.X_OK)
