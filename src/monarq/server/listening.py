"""The sockets that the server listens on, and what they need: TLS, file descriptors.

Opens no connection and knows nothing of HTTP.
"""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import socket
import ssl
from collections.abc import Sequence

from monarq.config import Settings
from monarq.errors import MonarqError

BACKLOG = 4_096


class ListenError(MonarqError):
    """The address cannot be listened on."""

    code = "cannot_listen"


def open_listeners(host: str, port: int, *, shared: bool = False) -> list[socket.socket]:
    """A bound socket for each address of `host`, all with the same port. `shared` ones let other
    processes that ask for it listen on the same port."""
    sockets: list[socket.socket] = []
    try:
        for family, address in _addresses(host, port):
            sockets.append(_bound(family, address, port, shared))
            port = sockets[0].getsockname()[1]
    except BaseException:
        close_all(sockets)
        raise
    return sockets


def reserve_port(host: str, port: int) -> list[socket.socket]:
    """Bound sockets that do not listen: they keep the port for the processes that will share it.

    A port that can be shared looks free to whoever shares it, so first it is asked for alone.
    """
    alone = open_listeners(host, port)
    port = alone[0].getsockname()[1]
    close_all(alone)
    return open_listeners(host, port, shared=True)


def close_all(sockets: Sequence[socket.socket]) -> None:
    for one in sockets:
        with contextlib.suppress(OSError):
            one.close()


def _addresses(host: str, port: int) -> list[tuple[socket.AddressFamily, tuple[str, int]]]:
    name = host.strip("[]")
    try:
        found = socket.getaddrinfo(name, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        reason = error.strerror or error
        raise ListenError(f"cannot listen on {host}: {reason}; set --host") from None
    addresses = dict.fromkeys((family, (str(at[0]), port)) for family, _, _, _, at in found)
    return list(addresses)


def _bound(
    family: socket.AddressFamily, address: tuple[str, int], port: int, shared: bool
) -> socket.socket:
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if shared:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if family == socket.AF_INET6:
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        made.setblocking(False)
        made.bind((address[0], port))
    except OSError as error:
        made.close()
        raise _explained(address[0], port, error) from None
    return made


def _explained(host: str, port: int, error: OSError) -> ListenError:
    if error.errno == errno.EADDRINUSE:
        return ListenError(
            f"port {port} on {host} is in use: stop what listens there, or set another --port"
        )
    if error.errno == errno.EACCES:
        return ListenError(f"port {port} on {host} may not be used by this user: set --port")
    if error.errno == errno.EADDRNOTAVAIL:
        return ListenError(f"{host} is no address of this machine: set --host")
    return ListenError(f"cannot listen on {host} port {port}: {error.strerror or error}")


def tls_context(settings: Settings) -> ssl.SSLContext | None:
    if not settings.tls_certificate:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    load_certificate(context, settings)
    return context


def load_certificate(context: ssl.SSLContext, settings: Settings) -> None:
    """Also for a context in use: connections made from now on get the new certificate."""
    try:
        context.load_cert_chain(settings.tls_certificate, settings.tls_key)
    except (ssl.SSLError, OSError) as error:
        raise ListenError(
            f"the certificate {settings.tls_certificate} and key {settings.tls_key} "
            f"cannot be used: {error}"
        ) from None


def raise_file_limit() -> int:
    """Allow as many open files as the system lets us; returns how many that are."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        # Some systems name a hard limit that they do not grant.
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return soft if soft != resource.RLIM_INFINITY else os.sysconf("SC_OPEN_MAX")
