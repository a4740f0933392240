"""The server's process: what it refuses to start with, and what it does with what it has."""

import contextlib
import resource
import signal
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.server.conftest import StartServer
from tests.server.serving import ServerProcess


@contextlib.contextmanager
def failing(settings: dict[str, Any]) -> Iterator[tuple[int, str]]:
    """Its exit code and what it said."""
    server = ServerProcess(settings)
    server.launch()
    try:
        yield server.wait(30), "\n".join(str(entry["message"]) for entry in server.log)
    finally:
        server.end()


def test_a_port_in_use_is_said_in_one_line_that_names_it(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        settings = {"port": port, "store": "memory:", "data_dir": str(tmp_path)}
        with failing(settings) as (code, said):
            assert code == 1
            lines = [line for line in said.splitlines() if "in use" in line]
            assert len(lines) == 1
            assert f"port {port}" in lines[0]
            assert "--port" in lines[0]
            assert "Traceback" not in said


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1"])
def test_it_does_not_listen_beyond_loopback_without_authentication(
    tmp_path: Path, host: str
) -> None:
    with failing({"host": host, "store": "memory:", "data_dir": str(tmp_path)}) as (code, said):
        assert code == 2
        assert "auth" in said
        assert "insecure" in said


def test_it_listens_beyond_loopback_if_told_that_this_is_meant(tmp_path: Path) -> None:
    settings = {"host": "0.0.0.0", "insecure": True, "store": "memory:", "data_dir": str(tmp_path)}
    with ServerProcess(settings) as server:
        assert server.get("/health").status == 200
        server.wait_for_log("nobody is authenticated")
        assert server.url.startswith("http://127.0.0.1:"), "what it says can be pasted"


def test_an_address_of_another_machine_is_said_so(tmp_path: Path) -> None:
    settings = {
        "host": "192.0.2.1",
        "insecure": True,
        "store": "memory:",
        "data_dir": str(tmp_path),
    }
    with failing(settings) as (code, said):
        assert code == 1
        assert "192.0.2.1 is no address of this machine" in said


def test_a_file_that_is_no_database_ends_it_at_once(tmp_path: Path) -> None:
    file = tmp_path / "notes.txt"
    file.write_text("this is not a database, and it must not become one\n" * 10)
    with failing({"store": f"sqlite:///{file}", "data_dir": str(tmp_path)}) as (code, said):
        assert code != 0
        assert str(file) in said
        assert "Traceback" not in said
    assert file.read_text().startswith("this is not")


def test_localhost_is_served_on_all_its_addresses(tmp_path: Path) -> None:
    settings = {"host": "localhost", "store": "memory:", "data_dir": str(tmp_path)}
    found = {at[0] for *_, at in socket.getaddrinfo("localhost", 0, type=socket.SOCK_STREAM)}
    with ServerProcess(settings) as server:
        for address in found:
            server.host = str(address)
            assert server.get("/health").status == 200


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not tell")
def test_it_may_open_as_many_files_as_the_system_allows(tmp_path: Path) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    settings = {"store": "memory:", "data_dir": str(tmp_path)}
    with ServerProcess(settings) as server:
        soft, _ = psutil.Process(server.pid).rlimit(psutil.RLIMIT_NOFILE)
        assert soft == hard


@pytest.mark.parametrize("served_store", ["sqlite"], indirect=True)
def test_a_stop_while_it_starts_is_obeyed(start_server: StartServer, tmp_path: Path) -> None:
    # A PostgreSQL that takes connections and never answers.
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        port = silent.getsockname()[1]
        server = ServerProcess(
            {
                "store": f"postgresql://someone@127.0.0.1:{port}/x",
                "data_dir": str(tmp_path),
            }
        )
        server.launch()
        try:
            silent.settimeout(30)
            with silent.accept()[0]:
                server.signal()
                assert server.wait(30) == 0
        finally:
            server.end()


@pytest.mark.parametrize("served_store", ["sqlite"], indirect=True)
def test_a_hangup_does_not_end_it(server: ServerProcess) -> None:
    server.signal(signal.SIGHUP)
    server.wait_for_log("no certificate")
    assert server.get("/health").status == 200


@pytest.mark.parametrize("served_store", ["sqlite"], indirect=True)
def test_idle_connections_cost_little_memory(server: ServerProcess) -> None:
    count = 5_000
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, count + 1_000)), hard))
    request = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with contextlib.ExitStack() as connections:
        # What the first ones take (caches, the allocator's pools) is not theirs alone.
        opened = [connections.enter_context(server.connect()) for _ in range(200)]
        before = server.memory_bytes
        opened += [connections.enter_context(server.connect()) for _ in range(count)]
        for one in opened:
            one.sendall(request)
        for one in opened:
            assert one.recv(1000).startswith(b"HTTP/1.1 200 ")
        grown = server.memory_bytes - before
        assert grown / count < 8_000, f"{grown / count:.0f} bytes each"
        assert server.get("/health").status == 200
