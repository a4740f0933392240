"""An HTTP proxy that passes requests on, and loses answers that it is told to lose."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

Lost = Callable[[], Awaitable[None]]


async def nothing() -> None:
    """What happens meanwhile, where nothing does."""


class LosingProxy:
    """What begins with one of the marks is carried out, and its answer is lost: the first time."""

    def __init__(self, target: str) -> None:
        host, _, port = target.removeprefix("http://").partition(":")
        self._target = (host, int(port))
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.url = ""
        self.requests: list[str] = []
        """The first lines of all that were answered, passed on or lost."""
        self.marks: set[str] = set()
        self.then: Lost = nothing
        """Happens when an answer was lost, before the client can repeat its request."""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        server_reader, server_writer = await asyncio.open_connection(*self._target)
        self._writers |= {writer, server_writer}
        try:
            while True:
                request = await _message(reader)
                server_writer.write(request)
                answer = await _message(server_reader)
                line = request.partition(b" HTTP/")[0].decode()
                lost = next((mark for mark in self.marks if line.startswith(mark)), None)
                if lost is not None:
                    self.marks.remove(lost)
                    await self.then()
                self.requests.append(line)
                if lost is not None:
                    return
                writer.write(answer)
        except (asyncio.IncompleteReadError, OSError):
            return
        finally:
            self._tasks.discard(task)
            self._writers -= {writer, server_writer}
            for one in (writer, server_writer):
                one.close()
                with suppress(OSError):
                    await one.wait_closed()

    async def close(self) -> None:
        tasks = list(self._tasks)
        for writer in self._writers:
            writer.close()
        await asyncio.gather(*tasks)


async def _message(reader: asyncio.StreamReader) -> bytes:
    """Head and body of a request or an answer."""
    head = await reader.readuntil(b"\r\n\r\n")
    for line in head.split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            return head + await reader.readexactly(int(value))
    return head


@asynccontextmanager
async def losing_proxy(target: str) -> AsyncIterator[LosingProxy]:
    proxy = LosingProxy(target)
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    proxy.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield proxy
    finally:
        server.close()
        await proxy.close()
        await server.wait_closed()
