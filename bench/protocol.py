"""What our HTTP protocol costs, beside a bare uvloop+httptools echo: the same request, the same
answer, the load from this process, each server in one of its own.

    echo      bench/echo.py: no limits, no time-outs, headers not even looked at
    protocol  our protocol in front of an application that answers at once
    pending   the same, with an answer that comes as a future in a later turn of the loop
    new head  as `protocol`, with a head that was never seen before in every request

The figure that holds on a busy machine is the CPU time per request, measured in the servers.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import uvloop

from bench.harness import machine, rate, table, take_turns, times, write_json
from monarq.loadgen import closed_loop, compose_request, connect
from monarq.operations.operation import Role
from monarq.server.exchange import Admission, Handled, Pending, Principal, RequestHead, Response
from monarq.server.http import Connection, Endpoint

PACKAGES = ("monarq", "httptools", "uvloop")
BODY = b'{"items":[{"queue":"bench","payload":"%b"}]}' % (b"x" * 256)
#: As many headers as a common client sends.
HEADERS = (
    ("Accept", "*/*"),
    ("Accept-Encoding", "gzip, deflate"),
    ("Connection", "keep-alive"),
    ("User-Agent", "python-httpx/0.28.1"),
)


class Echo:
    """The application of the server in test."""

    def __init__(self, answer: bytes) -> None:
        self._response = Response(201, answer)
        self._loop = asyncio.get_running_loop()

    def admit(self, head: RequestHead) -> Admission:
        return Admission(Principal(None, Role.ADMIN))

    def handle(self, head: RequestHead, body: bytes, admission: Admission | None = None) -> Handled:
        if head.target != "/pending":
            return self._response
        future: asyncio.Future[Response] = self._loop.create_future()
        self._loop.call_soon(future.set_result, self._response)
        return Pending(future, lambda response: response)


async def serve() -> None:
    """Run as a program with `serve`: prints its port, and serves until its stdin is closed."""
    from bench.echo import ANSWER

    loop = asyncio.get_running_loop()
    endpoint = Endpoint(Echo(ANSWER.partition(b"\r\n\r\n")[2]))
    server = await loop.create_server(lambda: Connection(endpoint), "127.0.0.1", 0, backlog=2048)
    print(server.sockets[0].getsockname()[1], flush=True)
    ended = asyncio.Event()
    loop.add_reader(sys.stdin.fileno(), ended.set)
    await ended.wait()


@contextlib.contextmanager
def server(*command: str) -> Iterator[tuple[int, psutil.Process]]:
    with subprocess.Popen(
        [sys.executable, *command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        try:
            yield int(process.stdout.readline()), psutil.Process(process.pid)
        finally:
            process.stdin.close()


class Side:
    """One server under load; tells the wall and CPU seconds that so many requests took."""

    def __init__(
        self, name: str, port: int, process: psutil.Process, target: str, requests: int
    ) -> None:
        self._name, self._port, self._process = name, port, process
        self._target, self._requests = target, requests
        self._numbers = itertools.count()

    async def __call__(self) -> dict[str, float]:
        connections = [await connect("127.0.0.1", self._port) for _ in range(256)]
        same = compose_request("POST", self._target, BODY, headers=HEADERS)
        left = iter(range(self._requests))

        def next_request() -> bytes | None:
            if next(left, None) is None:
                return None
            if self._target != "/new":
                return same
            return compose_request("POST", f"/{next(self._numbers)}", BODY, headers=HEADERS)

        before = self._process.cpu_times()
        report = await closed_loop(connections, next_request)
        after = self._process.cpu_times()
        assert not report.errors
        for connection in connections:
            connection.close()
        cpu = after.user + after.system - before.user - before.system
        return {self._name: report.seconds, f"{self._name} cpu": cpu}


async def measure(rounds: int, requests: int, output: Path | None) -> None:
    here = Path(__file__)
    with (
        server(str(here.parent / "echo.py")) as (echo_port, echo),
        server(str(here), "serve") as (our_port, ours),
    ):
        names = ("echo", "protocol", "pending", "new head")
        found = await take_turns(
            [
                Side("echo", echo_port, echo, "/push", requests),
                Side("protocol", our_port, ours, "/push", requests),
                Side("pending", our_port, ours, "/pending", requests),
                Side("new head", our_port, ours, "/new", requests),
            ],
            rounds=rounds,
        )
    rows = [
        (
            name,
            rate(requests, found.seconds(name)),
            times(found.times_faster([name], ["echo"])),
            f"{found.seconds(f'{name} cpu') / requests * 1e6:.1f}",
            times(found.times_faster([f"{name} cpu"], ["echo cpu"])),
        )
        for name in names
    ]
    print(table(("", "requests/s", "of the echo", "CPU µs each", "of the echo"), rows))
    record = {
        "machine": machine(PACKAGES),
        "requests": requests,
        "connections": 256,
        "rounds": found.as_json(),
    }
    print(f"written to {write_json('protocol', record, output)}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("mode", nargs="?", choices=("serve",), help=argparse.SUPPRESS)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--requests", type=int, default=50_000)
    parser.add_argument("--output", type=Path, help="where to write the JSON")
    options = parser.parse_args()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        if options.mode == "serve":
            runner.run(serve())
        else:
            runner.run(measure(options.rounds, options.requests, options.output))


if __name__ == "__main__":
    main()
