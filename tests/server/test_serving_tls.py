"""The server over TLS."""

import contextlib
import signal
import ssl
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from cryptography import x509

from tests.server.certificates import write_certificate
from tests.server.serving import ServerError, ServerProcess


@dataclass
class Secured:
    server: ServerProcess
    certificate: Path
    key: Path

    def trusting(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=str(self.certificate))

    @contextlib.contextmanager
    def connect(self) -> Iterator[ssl.SSLSocket]:
        with (
            self.server.connect() as plain,
            self.trusting().wrap_socket(plain, server_hostname="localhost") as made,
        ):
            yield made

    def serial(self) -> int:
        """Of the certificate that it shows."""
        with self.connect() as made:
            shown = made.getpeercert(binary_form=True)
            assert shown is not None
            return x509.load_der_x509_certificate(shown).serial_number


@pytest.fixture
def secured(tmp_path: Path) -> Iterator[Secured]:
    certificate, key = tmp_path / "certificate.pem", tmp_path / "key.pem"
    write_certificate(certificate, key)
    settings = {
        "store": "memory:",
        "data_dir": str(tmp_path / "data"),
        "tls_certificate": str(certificate),
        "tls_key": str(key),
    }
    tls = ssl.create_default_context(cafile=str(certificate))
    with ServerProcess(settings, tls=tls) as server:
        yield Secured(server, certificate, key)


def test_a_message_goes_through(secured: Secured) -> None:
    server = secured.server
    assert server.url.startswith("https://")
    item = {"queue": "q", "payload": "x" * 500_000}
    assert server.post("/api/v1/push", {"items": [item]}).status == 201
    popped = server.get("/api/v1/pop/queue/q").json
    assert popped["messages"][0]["data"] == item["payload"]


def test_a_connection_is_kept_and_pipelines(secured: Secured) -> None:
    with secured.connect() as connection:
        connection.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n" * 3)
        received = b""
        while received.count(b"HTTP/1.1 200 ") < 3:
            received += connection.recv(10_000)


def test_old_versions_are_refused(secured: Secured) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_ciphers("ALL:@SECLEVEL=0")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        context.minimum_version = ssl.TLSVersion.TLSv1
        context.maximum_version = ssl.TLSVersion.TLSv1_1
    with secured.server.connect() as plain, pytest.raises((ssl.SSLError, ConnectionResetError)):
        context.wrap_socket(plain)


def test_plain_http_is_not_answered_and_harms_nobody(secured: Secured) -> None:
    with secured.server.connect() as plain:
        plain.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        with contextlib.suppress(ConnectionResetError):
            assert not plain.recv(1000).startswith(b"HTTP")
    assert secured.server.get("/health").status == 200


def test_a_handshake_that_never_ends_holds_nobody_up(secured: Secured) -> None:
    with secured.server.connect() as silent:
        silent.sendall(b"\x16\x03\x01")
        assert secured.server.get("/health").status == 200


def test_a_refused_client_reads_why(secured: Secured) -> None:
    with secured.connect() as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n")
        received = b""
        with contextlib.suppress(ssl.SSLEOFError):
            while piece := connection.recv(1000):
                received += piece
        assert received.startswith(b"HTTP/1.1 400 ")
        assert b"twice" in received


def test_a_hangup_brings_the_new_certificate_and_keeps_connections(secured: Secured) -> None:
    old = secured.serial()
    with secured.connect() as kept:
        new = write_certificate(secured.certificate, secured.key, "renewed")
        secured.server.signal(signal.SIGHUP)
        secured.server.wait_for_log("read again")
        assert secured.serial() == new != old
        kept.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert kept.recv(1000).startswith(b"HTTP/1.1 200 ")


def test_a_bad_new_certificate_leaves_the_old_one(secured: Secured) -> None:
    old = secured.serial()
    trusted = secured.certificate.read_bytes()
    secured.certificate.write_text("this is no certificate")
    secured.server.signal(signal.SIGHUP)
    secured.server.wait_for_log("was not changed")
    secured.certificate.write_bytes(trusted)
    assert secured.serial() == old


def test_a_stop_ends_idle_connections(secured: Secured) -> None:
    with secured.connect() as idle:
        idle.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert idle.recv(1000).startswith(b"HTTP/1.1 200 ")
        secured.server.signal()
        with contextlib.suppress(ssl.SSLEOFError, ConnectionResetError):
            assert idle.recv(1000) == b""
    assert secured.server.wait(20) == 0


def test_a_key_of_another_certificate_is_refused_at_the_start(tmp_path: Path) -> None:
    for name in ("one", "two"):
        write_certificate(tmp_path / f"{name}.pem", tmp_path / f"{name}.key")
    settings = {
        "store": "memory:",
        "data_dir": str(tmp_path / "data"),
        "tls_certificate": str(tmp_path / "one.pem"),
        "tls_key": str(tmp_path / "two.key"),
    }
    server = ServerProcess(settings)
    with pytest.raises(ServerError, match="tls_certificate"):
        server.start()
    server.end()
